#define PLUMB_SIMD _Pragma("omp simd")  // compiled with -fopenmp-simd, see CMakeLists.txt

#include "base/router/rows.h"

#include <cstring>

#include "base/load.h"
#include "base/router/quick_choice.h"

namespace plumbline {
namespace {

#define PLUMB_INLINE [[gnu::always_inline]] inline

// Conversions without branches, for loops that vectorise. Narrow formats are converted through
// integers: no operand is an f32 subnormal, so it does not matter whether the trainer flushes
// subnormals to zero.
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

PLUMB_INLINE void LoadScores(const ScoreRows& s, int64_t row, int experts, double* x) {
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
    default:  // no dtype of scores that is measured
      for (int i = 0; i < experts; ++i) {
        x[i] = LoadDouble(s.data, s.dtype, row * s.row + i * s.column);
      }
  }
}

struct Full {
  PLUMB_INLINE static RowScale Do(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                                  const double* bias, double* x, RouterScratch* scratch,
                                  RouterChoice* choice) {
    LoadScores(scores, row, rule.experts, x);
    const RowScale scale = ScaleRow(rule, x, scratch);
    ChooseExperts(rule, scale, x, bias, scratch, choice);
    return scale;
  }
};

struct ChoiceAlone {
  PLUMB_INLINE static RowScale Do(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                                  const double* bias, double* x, RouterScratch* scratch,
                                  RouterChoice* choice) {
    LoadScores(scores, row, rule.experts, x);
    ChooseOnly(rule, x, bias, scratch, choice);
    return {};
  }
};

struct ScaleAlone {
  PLUMB_INLINE static RowScale Do(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                                  const double*, double* x, RouterScratch* scratch, RouterChoice*) {
    LoadScores(scores, row, rule.experts, x);
    return ScaleRow(rule, x, scratch);
  }
};

using Function = RowScale (*)(const RouterRule&, const ScoreRows&, int64_t, const double*, double*,
                              RouterScratch*, RouterChoice*);

template <typename What>
[[gnu::flatten]] RowScale Portable(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                                   const double* bias, double* x, RouterScratch* scratch,
                                   RouterChoice* choice) {
  return What::Do(rule, scores, row, bias, x, scratch, choice);
}

#if defined(__x86_64__)
// AVX2 without FMA: the compiler could not fuse even if it were allowed to.
template <typename What>
[[gnu::flatten, gnu::target("avx2")]] RowScale Avx2(const RouterRule& rule, const ScoreRows& scores,
                                                    int64_t row, const double* bias, double* x,
                                                    RouterScratch* scratch, RouterChoice* choice) {
  return What::Do(rule, scores, row, bias, x, scratch, choice);
}
#endif

template <typename What>
Function Widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return Avx2<What>;
#endif
  return Portable<What>;
}

}  // namespace

RowScale ReadRouterRow(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                       const double* bias, double* x, RouterScratch* scratch,
                       RouterChoice* choice) {
  static const Function function = Widest<Full>();
  return function(rule, scores, row, bias, x, scratch, choice);
}

void ReadRouterChoice(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                      const double* bias, double* x, RouterScratch* scratch, RouterChoice* choice) {
  static const Function function = Widest<ChoiceAlone>();
  function(rule, scores, row, bias, x, scratch, choice);
}

RowScale ReadRouterScale(const RouterRule& rule, const ScoreRows& scores, int64_t row, double* x,
                         RouterScratch* scratch) {
  static const Function function = Widest<ScaleAlone>();
  return function(rule, scores, row, nullptr, x, scratch, nullptr);
}

}  // namespace plumbline
