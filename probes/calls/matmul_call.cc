#include "probes/calls/matmul_call.h"

#include <algorithm>

namespace plumbline::probes {
namespace {

// Nearly every element of a 32-bit result distinguishes arithmetics; of a 16-bit result only those
// next to a rounding boundary.
constexpr int kWideElements = 64;

uint64_t VectorBytes(const MatmulCall& call) {
  const uint64_t factors = DTypeSize(call.input.a.dtype) + DTypeSize(call.input.b.dtype);
  const auto block = static_cast<uint64_t>(call.fields.block);
  const uint64_t scales = block == 0 ? 0 : (call.fields.inner + block - 1) / block;
  return call.fields.inner * factors + 2 * sizeof(float) * scales;
}

}  // namespace

void Complete(MatmulCall* call) {
  const TensorView& a = call->input.a;
  call->fields.inner = static_cast<uint64_t>(a.shape[static_cast<size_t>(a.rank - 1)]);
  call->fields.columns = static_cast<uint64_t>(call->input.b.shape[1]);
  call->fields.rows = Elements(a) / call->fields.inner;
  const TensorView &a_scale = call->input.a_scale, &b_scale = call->input.b_scale;
  if (!a_scale.present() && !b_scale.present()) return;
  const auto one = [](const TensorView& v) { return !v.present() || v.elements() == 1; };
  const bool tensors = one(a_scale) && one(b_scale);
  call->fields.tensor_scales = tensors ? 1 : 0;
  const int64_t block = call->input.block;
  call->fields.block = block > 0 ? block : static_cast<int64_t>(call->fields.inner);
}

ProductPlan PlanSample(const MatmulCall& call, const MeasureOptions& options) {
  // Half, for the vectors: elements and message take a little more.
  const uint64_t vectors = options.sample_max_bytes / 2 / VectorBytes(call);
  if (vectors == 0) return {};
  const bool wide = DTypeSize(call.input.d.dtype) >= 4;
  return PlanProduct(call.input, options.key,
                     static_cast<int>(std::min<uint64_t>(vectors, kProductVectors)),
                     wide ? kWideElements : kProductElements);
}

MatmulCall SampledCall(const MatmulCall& call, const ProductPlan& plan, const std::byte* memory) {
  MatmulCall sampled = call;
  const ProductInput& from = call.input;
  sampled.input = ProductInput();
  sampled.input.a = TensorView::Dense(memory, from.a.dtype, plan.rows, plan.inner);
  sampled.input.b = TensorView::Dense(memory + plan.b_at, from.b.dtype, plan.columns, plan.inner);
  sampled.input.d = TensorView::Dense(memory + plan.d_at, from.d.dtype, plan.elements);
  if (from.c.present())
    sampled.input.c = TensorView::Dense(memory + plan.c_at, from.c.dtype, plan.elements);
  if (from.a_scale.present())
    sampled.input.a_scale = TensorView::Dense(memory + plan.a_scale_at, from.a_scale.dtype,
                                              plan.rows, static_cast<int64_t>(plan.blocks));
  if (from.b_scale.present())
    sampled.input.b_scale = TensorView::Dense(memory + plan.b_scale_at, from.b_scale.dtype,
                                              plan.columns, static_cast<int64_t>(plan.blocks));
  sampled.fields.sampled_rows = plan.rows;
  sampled.fields.sampled_columns = plan.columns;
  sampled.fields.elements = plan.elements;
  return sampled;
}

MatmulCall WithoutSample(const MatmulCall& call, std::string_view reason) {
  MatmulCall bare = call;
  bare.input = ProductInput();
  bare.no_sample_reason = reason;
  return bare;
}

}  // namespace plumbline::probes
