#include "analysis/accumulation/left_gradient.h"

#include <algorithm>
#include <cmath>

#include "base/load.h"

namespace plumbline::analysis {
namespace {

bool ReadsAs(const v1::Tensor& tensor, DType dtype, size_t size) {
  return static_cast<DType>(tensor.dtype()) == dtype &&
         tensor.data().size() == size * DTypeSize(dtype);
}

LeftGradient::Kind KindOf(const LeftGradient& seen, bool found_any, bool poisoned) {
  using Kind = LeftGradient::Kind;
  if (poisoned && seen.non_zero == 0) return Kind::kPoisoned;
  if (!found_any) return Kind::kCleared;
  if (seen.non_zero < LeftGradient::kFewElements) return Kind::kFew;
  return seen.same == seen.non_zero ? Kind::kStale : Kind::kChanged;
}

uint64_t OffsetOf(const v1::Tensor& offsets, size_t i) {
  const auto dtype = static_cast<DType>(offsets.dtype());
  if (!IsInteger(dtype) || offsets.data().size() < (i + 1) * DTypeSize(dtype)) return i;
  return static_cast<uint64_t>(LoadInt64(offsets.data().data(), dtype, static_cast<int64_t>(i)));
}

}  // namespace

LeftGradient LookAtLeft(const v1::ReductionSample& sample) {
  LeftGradient seen;
  const v1::Tensor& left = sample.inputs();
  const v1::Tensor& found = sample.output();
  const auto dtype = static_cast<DType>(left.dtype());
  if (!IsFloating(dtype) || left.data().empty()) return seen;
  const size_t size = left.data().size() / DTypeSize(dtype);
  if (!ReadsAs(left, dtype, size) || !ReadsAs(found, dtype, size)) return seen;
  bool found_any = false, poisoned = false;
  for (size_t i = 0; i < size; ++i) {
    const double was = LoadDouble(left.data().data(), dtype, static_cast<int64_t>(i));
    const double is = LoadDouble(found.data().data(), dtype, static_cast<int64_t>(i));
    found_any |= is != 0;  // also true for NaN
    poisoned |= !std::isfinite(was);
    if (!std::isfinite(was) || was == 0) continue;
    ++seen.non_zero;
    if (is != was) continue;  // same dtype and not zero: equal values have equal bits
    if (seen.same++ > 0) continue;
    seen.example = was;
    seen.element = OffsetOf(sample.offsets(), i);
  }
  seen.kind = KindOf(seen, found_any, poisoned);
  return seen;
}

void CarriedSum::Take(int64_t of_step, const Accumulation& sum) {
  constexpr size_t kKept = 256;
  if (of_step <= step) return;  // a restart repeats the step
  if (step >= 0 && of_step != step + 1) ++gaps;
  if (of_step == step + 1) Compare(of_step, sum);
  step = of_step;
  result_.clear();
  for (size_t i = 0; i < std::min(sum.samples, kKept); ++i)
    result_.emplace(sum.offsets[i], sum.result[i]);
}

void CarriedSum::Compare(int64_t of_step, const Accumulation& sum) {
  size_t same = 0, compared = 0;
  for (size_t i = 0; i < sum.samples; ++i) {
    const auto before = result_.find(sum.offsets[i]);
    if (before == result_.end() || !std::isfinite(before->second) || before->second == 0) continue;
    const double begins = sum.has_start ? sum.start[i] : sum.addend(0, i);
    ++compared;
    same += begins == before->second ? 1 : 0;
  }
  if (compared < LeftGradient::kFewElements) return;
  if (same < compared) {
    ++anew;
    return;
  }
  if (steps++ == 0) step_first = of_step;
  non_zero = compared;
}

}  // namespace plumbline::analysis
