#include "kernels/routing_row_host.h"

#include <cstring>

#include "base/load.h"

namespace plumbline {
namespace {

#define PLUMB_INLINE [[gnu::always_inline]] inline

// Conversions without branches, for loops that vectorise. Narrow formats go through integers: no
// f32 subnormal is ever an operand, so a trainer that flushes them changes nothing.
PLUMB_INLINE double AsDouble(double v) { return v; }
PLUMB_INLINE double AsDouble(float v) { return v; }

struct BF16Code {
  uint16_t bits;
};
PLUMB_INLINE double AsDouble(BF16Code v) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(v.bits) << 16);
}

struct F16Code {
  uint16_t bits;
};
PLUMB_INLINE double AsDouble(F16Code v) {
  const uint64_t code = v.bits;
  const uint64_t magnitude = code & 0x7fff;
  const uint64_t exponent_shift = magnitude >= 0x7c00 ? 2047 - 31 : 1023 - 15;
  const uint64_t normal = (magnitude << 42) + (exponent_shift << 52);
  const double subnormal = static_cast<double>(static_cast<int32_t>(magnitude)) * 0x1p-24;
  const uint64_t bits = magnitude < 0x400 ? __builtin_bit_cast(uint64_t, subnormal) : normal;
  return __builtin_bit_cast(double, bits | (code & 0x8000) << 48);
}

template <typename T>
PLUMB_INLINE void Convert(const char* from, int64_t step, int experts, double* x) {
  if (step == 1) {
    T row[kMaxExperts];
    std::memcpy(row, from, static_cast<size_t>(experts) * sizeof(T));
    for (int i = 0; i < experts; ++i) x[i] = AsDouble(row[i]);
    return;
  }
  const int64_t bytes = step * static_cast<int64_t>(sizeof(T));
  for (int i = 0; i < experts; ++i) {
    T v;
    std::memcpy(&v, from + i * bytes, sizeof(T));
    x[i] = AsDouble(v);
  }
}

PLUMB_INLINE void LoadScores(const StridedView& s, int64_t row, int experts, double* x) {
  const char* from =
      static_cast<const char*>(s.data) + row * s.row * static_cast<int64_t>(DTypeSize(s.dtype));
  switch (s.dtype) {
    case DType::kF64:
      return Convert<double>(from, s.column, experts, x);
    case DType::kF32:
      return Convert<float>(from, s.column, experts, x);
    case DType::kBF16:
      return Convert<BF16Code>(from, s.column, experts, x);
    case DType::kF16:
      return Convert<F16Code>(from, s.column, experts, x);
    default:  // refused by PlanRouting
      for (int i = 0; i < experts; ++i) x[i] = s.Number(row, i);
  }
}

PLUMB_INLINE RowScale Body(const RoutingPlan& plan, int64_t row, const double* bias, double* x,
                           RouterScratch* scratch, RouterChoice* choice) {
  LoadScores(plan.scores, row, plan.rule.experts, x);
  const RowScale scale = ScaleRow(plan.rule, x, scratch);
  ChooseExperts(plan.rule, scale, x, bias, scratch, choice);
  return scale;
}

[[gnu::flatten]] RowScale Portable(const RoutingPlan& plan, int64_t row, const double* bias,
                                   double* x, RouterScratch* scratch, RouterChoice* choice) {
  return Body(plan, row, bias, x, scratch, choice);
}

#if defined(__x86_64__)
// AVX2 without FMA: the compiler could not fuse even if it were allowed to.
[[gnu::flatten, gnu::target("avx2")]] RowScale Avx2(const RoutingPlan& plan, int64_t row,
                                                    const double* bias, double* x,
                                                    RouterScratch* scratch, RouterChoice* choice) {
  return Body(plan, row, bias, x, scratch, choice);
}
#endif

using Function = RowScale (*)(const RoutingPlan&, int64_t, const double*, double*, RouterScratch*,
                              RouterChoice*);

Function Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return Avx2;
#endif
  return Portable;
}

}  // namespace

RowScale ReadRow(const RoutingPlan& plan, int64_t row, const double* bias, double* x,
                 RouterScratch* scratch, RouterChoice* choice) {
  static const Function function = Choose();
  return function(plan, row, bias, x, scratch, choice);
}

}  // namespace plumbline
