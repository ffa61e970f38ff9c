// One matrix product as the trainer declared it, and what of it is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/product/gather.h"
#include "probes/calls/measure.h"

namespace plumbline::probes {

// What u8 scales hold, and how d was stored; the first of each: nobody said.
inline constexpr std::string_view kScaleFormats[] = {"", "f32", "e8m0", "e4m3"};
inline constexpr std::string_view kOutputRoundings[] = {"", "nearest", "stochastic"};

// As the trainer declared it (plumbline_matmul_t); views and texts are borrowed.
struct MatmulCall {
  ProductInput input;  // whole matrices; of a sampled call what was gathered of them
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
    // The scales are one for the whole tensor each.
    int32_t tensor_scales = 0;
    int32_t reserved = 0;
  } fields;
};

// Says rows, columns and inner of a checked call.
void Complete(MatmulCall* call);

// Why a sampled step keeps nothing.
inline constexpr std::string_view kProductTooLarge = "a row and a column exceed the sample's bytes";

// What a sampled step keeps of a completed call, within options.sample_max_bytes. elements == 0:
// one row and one column are more than that.
ProductPlan PlanSample(const MatmulCall& call, const MeasureOptions& options);

// The call whose input is what `plan` gathered into `memory`.
MatmulCall SampledCall(const MatmulCall& call, const ProductPlan& plan, const std::byte* memory);
MatmulCall WithoutSample(const MatmulCall& call, std::string_view reason);

}  // namespace plumbline::probes
