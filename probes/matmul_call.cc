#include "probes/matmul_call.h"

#include <algorithm>

namespace plumbline::probes {
namespace {

// A 32-bit result tells arithmetics apart at nearly every element; of a 16-bit one those alone that
// lie next to a rounding boundary.
constexpr int kWideElements = 64;

uint64_t VectorBytes(const MatmulCall& call) {
  return call.fields.inner * (DTypeSize(call.input.a.dtype) + DTypeSize(call.input.b.dtype));
}

}  // namespace

void Complete(MatmulCall* call) {
  const TensorView& a = call->input.a;
  call->fields.inner = static_cast<uint64_t>(a.shape[static_cast<size_t>(a.rank - 1)]);
  call->fields.columns = static_cast<uint64_t>(call->input.b.shape[1]);
  call->fields.rows = Elements(a) / call->fields.inner;
}

ProductPlan PlanSample(const MatmulCall& call, const MeasureOptions& options) {
  // Half for the vectors' sake: elements and message take a little more.
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
