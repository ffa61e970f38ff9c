// One matrix product as the trainer declared it, and the parts that are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/product/gather.h"
#include "probes/calls/measure.h"

namespace plumbline::probes {

// The formats of u8 scales, and the roundings of d. The first text of each list means "not given".
inline constexpr std::string_view kScaleFormats[] = {"", "f32", "e8m0", "e4m3"};
inline constexpr std::string_view kOutputRoundings[] = {"", "nearest", "stochastic"};

// As the trainer declared it (plumbline_matmul_t); views and texts are borrowed.
struct MatmulCall {
  ProductInput input;  // whole matrices; for a sampled call the gathered parts
  std::string_view input_format, library, no_sample_reason;
  struct Fields {
    uint64_t rows = 0;  // of D
    uint64_t columns = 0;
    uint64_t inner = 0;        // K
    int32_t declared = 0;      // DType of the accumulator
    int32_t sampled_rows = 0;  // 0: nothing was gathered, or not yet
    int32_t sampled_columns = 0;
    int32_t elements = 0;
    double scale = 0;             // of every element of d; 0: 1
    int64_t block = 0;            // products that share a scale, K where a row has one; 0: none
    int32_t scale_format = 0;     // index into kScaleFormats
    int32_t output_rounding = 0;  // index into kOutputRoundings
    // Each factor has one scale for the whole tensor.
    int32_t tensor_scales = 0;
    int32_t reserved = 0;
  } fields;
};

// Sets rows, columns and inner of a checked call.
void Complete(MatmulCall* call);

// The reason why a sampled step keeps no elements.
inline constexpr std::string_view kProductTooLarge = "a row and a column exceed the sample's bytes";

// Plans the parts of a completed call that a sampled step keeps, within options.sample_max_bytes.
// elements == 0: one row and one column exceed the limit.
ProductPlan PlanSample(const MatmulCall& call, const MeasureOptions& options);

// Returns the call whose input is what `plan` gathered into `memory`.
MatmulCall SampledCall(const MatmulCall& call, const ProductPlan& plan, const std::byte* memory);
MatmulCall WithoutSample(const MatmulCall& call, std::string_view reason);

}  // namespace plumbline::probes
