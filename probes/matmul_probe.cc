#include "probes/matmul_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/block_formats.h"
#include "base/load.h"
#include "kernels/evidence/tensor.h"
#include "probes/calls/call_slot.h"
#include "probes/calls/tensor_checks.h"

namespace plumbline::probes {
namespace {

struct MatmulParts {
  explicit MatmulParts(const MatmulCall& call)
      : texts{call.input_format, call.library, call.no_sample_reason},
        tensors{call.input.a, call.input.b,       call.input.d,
                call.input.c, call.input.a_scale, call.input.b_scale},
        all{std::as_bytes(std::span(&call.fields, 1)), texts, tensors} {}
  std::array<std::string_view, 3> texts;
  std::array<TensorView, 6> tensors;
  CallParts all;
};

void FillConfig(const MatmulCall& call, v1::MatmulConfig* out) {
  out->set_rows(call.fields.rows);
  out->set_columns(call.fields.columns);
  out->set_inner(call.fields.inner);
  out->set_declared_accumulator(static_cast<v1::DType>(call.fields.declared));
  out->set_input_format(std::string(call.input_format));
  out->set_library(std::string(call.library));
  const MatmulCall::Fields& f = call.fields;
  out->set_scale(f.scale);
  if (f.block > 0 && f.tensor_scales == 0) {
    out->set_block(static_cast<uint32_t>(f.block));
    out->set_scale_format(std::string(kScaleFormats[f.scale_format]));
  }
  out->set_output_rounding(std::string(kOutputRoundings[f.output_rounding]));
}

// Fills scales as f32 numbers, from any stored format; `count` ones if a factor has none.
absl::Status FillScales(const TensorView& view, int32_t format, int64_t rows, int64_t blocks,
                        v1::Tensor* out) {
  std::vector<float> scales(static_cast<size_t>(rows * blocks), 1.0F);
  for (size_t i = 0; view.present() && i < scales.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (view.dtype != DType::kU8) {
      scales[i] = static_cast<float>(LoadDouble(view.data, view.dtype, at));
      continue;
    }
    const auto code = LoadRaw<uint8_t>(view.data, at);
    scales[i] =
        kScaleFormats[format] == "e8m0" ? static_cast<float>(E8M0Value(code)) : E4M3ToFloat(code);
  }
  const TensorView dense = rows == 1 && blocks == 1
                               ? TensorView::Dense(scales.data(), DType::kF32, 1)
                               : TensorView::Dense(scales.data(), DType::kF32, rows, blocks);
  return PackTensor(dense, out);
}

absl::Status FillScales(const MatmulCall& call, v1::MatmulSample* out) {
  const ProductInput& in = call.input;
  const MatmulCall::Fields& f = call.fields;
  if (!in.a_scale.present() && !in.b_scale.present()) return absl::OkStatus();
  if (f.tensor_scales != 0) {
    absl::Status s = absl::OkStatus();
    if (in.a_scale.present())
      s = FillScales(in.a_scale, f.scale_format, 1, 1, out->mutable_a_tensor_scale());
    if (s.ok() && in.b_scale.present())
      s = FillScales(in.b_scale, f.scale_format, 1, 1, out->mutable_b_tensor_scale());
    return s;
  }
  const auto blocks = static_cast<int64_t>((f.inner + static_cast<uint64_t>(f.block) - 1) /
                                           static_cast<uint64_t>(f.block));
  absl::Status s =
      FillScales(in.a_scale, f.scale_format, f.sampled_rows, blocks, out->mutable_a_scale());
  return s.ok() ? FillScales(in.b_scale, f.scale_format, f.sampled_columns, blocks,
                             out->mutable_b_scale())
                : s;
}

absl::Status FillTensors(const ProductInput& in, v1::MatmulSample* out) {
  absl::Status s = PackTensor(in.a, out->mutable_a());
  if (s.ok()) s = PackTensor(in.b, out->mutable_b());
  if (s.ok()) s = PackTensor(in.d, out->mutable_d());
  if (s.ok() && in.c.present()) s = PackTensor(in.c, out->mutable_c());
  return s;
}

// Fills the positions of the elements in D, and their gathered vectors.
absl::Status FillPlaces(const MatmulCall::Fields& f, uint64_t key, v1::MatmulSample* out) {
  std::vector<uint64_t> offsets;
  std::vector<uint8_t> rows, columns;
  ProductPairs pairs(f.sampled_rows, f.sampled_columns);
  for (int32_t i = 0; i < f.elements; ++i) {
    const ProductPair pair = pairs.Next();
    rows.push_back(static_cast<uint8_t>(pair.row));
    columns.push_back(static_cast<uint8_t>(pair.column));
    offsets.push_back(SampledRow(key, f.rows, pair.row) * f.columns +
                      SampledColumn(key, f.columns, pair.column));
  }
  static_assert(kProductVectors <= 256);
  const auto m = static_cast<int64_t>(f.elements);
  absl::Status s =
      PackTensor(TensorView::Dense(offsets.data(), DType::kU64, m), out->mutable_offsets());
  if (s.ok()) s = PackTensor(TensorView::Dense(rows.data(), DType::kU8, m), out->mutable_a_index());
  if (s.ok())
    s = PackTensor(TensorView::Dense(columns.data(), DType::kU8, m), out->mutable_b_index());
  return s;
}

absl::Status CheckScales(const MatmulCall& call) {
  const MatmulCall::Fields& f = call.fields;
  if (!std::isfinite(f.scale))
    return absl::InvalidArgumentError("scale: expected a finite number, found " +
                                      std::to_string(f.scale));
  if (call.input.block > std::numeric_limits<uint32_t>::max())
    return absl::InvalidArgumentError("block: expected at most 2^32 - 1, found " +
                                      std::to_string(call.input.block));
  for (const TensorView* view : {&call.input.a_scale, &call.input.b_scale}) {
    const std::string_view format = kScaleFormats[f.scale_format];
    if (view->present() && view->dtype == DType::kU8 && format != "e8m0" && format != "e4m3")
      return absl::InvalidArgumentError(
          "scale_format: expected e8m0 or e4m3 for scales of u8 elements");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCall(const MatmulCall& call) {
  if (absl::Status s = CheckProduct(call.input); !s.ok()) return s;
  if (absl::Status s = CheckDeclared("declared_accumulator", call.fields.declared); !s.ok())
    return s;
  if (absl::Status s = CheckText("library", call.library); !s.ok()) return s;
  constexpr std::string_view kFormats[] = {"",     "tf32", "f32",  "f16",
                                           "bf16", "e4m3", "e5m2", "e2m1"};
  if (std::find(std::begin(kFormats), std::end(kFormats), call.input_format) ==
      std::end(kFormats)) {
    return absl::InvalidArgumentError(
        "input_format: expected tf32, f32, f16, bf16, e4m3, e5m2, e2m1 or nothing, found \"" +
        std::string(call.input_format) + "\"");
  }
  return CheckScales(call);
}

void Sample(const MeasureOptions& options, std::vector<std::byte>* memory, MatmulCall* call) {
  if (!options.sampled) {
    *call = WithoutSample(*call, "");
    return;
  }
  const ProductPlan plan = PlanSample(*call, options);
  if (plan.elements == 0) {
    *call = WithoutSample(*call, kProductTooLarge);
    return;
  }
  memory->resize(plan.bytes);
  GatherProduct(plan, memory->data());
  *call = SampledCall(*call, plan, memory->data());
}

uint64_t SampleBytes(const MatmulCall& call) {
  MeasureOptions options;
  options.sampled = true;
  return PlanSample(call, options).bytes;
}

uint64_t SummaryBytes(const MatmulCall& call) {
  constexpr uint64_t kFixed = 32;
  return kFixed + call.library.size();
}

size_t SlotBytes(const MatmulCall& call) { return CallBytes(MatmulParts(call).all); }

void StoreCall(const MatmulCall& call, std::byte* slot) { StoreCall(MatmulParts(call).all, slot); }

MatmulCall LoadMatmulCall(const std::byte* slot) {
  CallReader reader(slot);
  MatmulCall call;
  call.fields = reader.fields<MatmulCall::Fields>();
  for (std::string_view* text : {&call.input_format, &call.library, &call.no_sample_reason})
    *text = reader.NextText();
  for (TensorView* view : {&call.input.a, &call.input.b, &call.input.d, &call.input.c,
                           &call.input.a_scale, &call.input.b_scale})
    *view = reader.NextTensor();
  return call;
}

absl::Status Measure(const MatmulCall& call, const MeasureOptions& options, v1::Evidence* out) {
  v1::Matmul* matmul = out->mutable_matmul();
  FillConfig(call, matmul->mutable_config());
  matmul->set_no_sample_reason(std::string(call.no_sample_reason));
  out->set_exercised(v1::EXERCISED_YES);
  if (call.fields.elements == 0) return absl::OkStatus();
  out->set_sample_size(static_cast<uint64_t>(call.fields.elements));
  absl::Status s = FillTensors(call.input, matmul->mutable_sample());
  if (s.ok()) s = FillScales(call, matmul->mutable_sample());
  return s.ok() ? FillPlaces(call.fields, options.key, matmul->mutable_sample()) : s;
}

}  // namespace plumbline::probes
