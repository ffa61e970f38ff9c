#include "analysis/collective/replay/arithmetic.h"

#include <bit>
#include <cmath>

namespace plumbline::analysis {
namespace {

// ---- rounding of f32 sums into narrower formats, without branches ----

template <DType kFormat>
struct Narrow {
  static constexpr FloatFormat kF = FormatOf(kFormat);
  static constexpr int kShift = 24 - kF.precision;
  static constexpr bool kFullRange = kF.min_exponent <= -126;
  static constexpr float kMinNormal = static_cast<float>(PowerOfTwo(kF.min_exponent));
  static constexpr float kMax = static_cast<float>(kF.max_finite);
  // Adding and subtracting 1.5 * 2^23 units rounds to whole units, to nearest even.
  static constexpr float kMagic =
      static_cast<float>(1.5 * PowerOfTwo(kF.min_exponent - kF.precision + 1 + 23));
  static constexpr float kBeyond = kFormat == DType::kE4M3 ? __builtin_nanf("") : __builtin_inff();

  static float Nearest(float v) {
    const auto bits = std::bit_cast<uint32_t>(v);
    const uint32_t rounded =
        (bits + ((1u << (kShift - 1)) - 1) + ((bits >> kShift) & 1u)) & ~((1u << kShift) - 1);
    float r = std::bit_cast<float>(rounded);
    if constexpr (!kFullRange) {
      const float small = (v + kMagic) - kMagic;
      r = std::fabs(v) < kMinNormal ? small : r;
      r = std::fabs(r) > kMax ? std::copysign(kBeyond, v) : r;
    }
    return std::isnan(v) ? v : r;
  }

  static float Cut(float v) {
    const auto bits = std::bit_cast<uint32_t>(v);
    float r = std::bit_cast<float>(bits & ~((1u << kShift) - 1));
    if constexpr (!kFullRange) {
      constexpr float kUnit = static_cast<float>(PowerOfTwo(kF.min_exponent - kF.precision + 1));
      const float small = std::trunc(v / kUnit) * kUnit;
      r = std::fabs(v) < kMinNormal ? small : r;
      r = std::fabs(r) > kMax && !std::isinf(v) ? std::copysign(kMax, v) : r;
    }
    return std::isnan(v) ? v : r;
  }
};

template <>
struct Narrow<DType::kF32> {
  static constexpr float kMinNormal = 0x1p-126f;
  static float Nearest(float v) { return v; }
  static float Cut(float v) { return v; }
};

// Returns a + b in double, rounded toward zero. If the nearest double is beyond the exact sum,
// returns its neighbour towards zero.
double TruncatedSum(double a, double b) {
  const double s = a + b;
  const double bb = s - a;
  const double err = (a - (s - bb)) + (b - bb);
  const auto bits = std::bit_cast<uint64_t>(s);
  const bool beyond = (err < 0 && s > 0) || (err > 0 && s < 0);
  return std::bit_cast<double>(beyond ? bits - 1 : bits);
}

template <bool kFlush>
float Flushed(float v, float min_normal) {
  if constexpr (kFlush) return std::fabs(v) < min_normal ? 0.0f : v;
  return v;
}

template <DType kFormat, bool kFlush>
void AddNearest(float* acc, const float* x, int n) {
  for (int i = 0; i < n; ++i)
    acc[i] = Flushed<kFlush>(Narrow<kFormat>::Nearest(acc[i] + x[i]), Narrow<kFormat>::kMinNormal);
}

template <DType kFormat, bool kFlush>
void AddCut(float* acc, const float* x, int n) {
  for (int i = 0; i < n; ++i)
    acc[i] = Flushed<kFlush>(Narrow<kFormat>::Cut(acc[i] + x[i]), Narrow<kFormat>::kMinNormal);
}

template <DType kFormat, bool kFlush>
void AddTruncated(float* acc, const float* x, int n) {
  for (int i = 0; i < n; ++i) {
    const double s = TruncatedSum(static_cast<double>(acc[i]), static_cast<double>(x[i]));
    acc[i] =
        Flushed<kFlush>(static_cast<float>(RoundToFormat(s, kFormat, RoundingMode::kTowardZero)),
                        Narrow<kFormat>::kMinNormal);
  }
}

template <DType kFormat, bool kFlush>
AddBlock<float> AdderOf(HopRounding rounding) {
  switch (rounding) {
    case HopRounding::kNearest:
      return AddNearest<kFormat, kFlush>;
    case HopRounding::kCut:
      return AddCut<kFormat, kFlush>;
    case HopRounding::kTowardZero:
      return AddTruncated<kFormat, kFlush>;
  }
  return nullptr;
}

template <DType kFormat>
AddBlock<float> AdderOf(HopRounding rounding, bool flush) {
  return flush ? AdderOf<kFormat, true>(rounding) : AdderOf<kFormat, false>(rounding);
}

void AddDouble(double* acc, const double* x, int n) {
  for (int i = 0; i < n; ++i) acc[i] += x[i];
}

void AddDoubleTruncated(double* acc, const double* x, int n) {
  for (int i = 0; i < n; ++i) acc[i] = TruncatedSum(acc[i], x[i]);
}

// ---- scaling ----

RoundingMode ModeOf(HopRounding rounding) {
  return rounding == HopRounding::kNearest ? RoundingMode::kNearestEven : RoundingMode::kTowardZero;
}

double FlushSubnormal(double x, DType t) {
  return std::fabs(x) < PowerOfTwo(FormatOf(t).min_exponent) ? 0.0 : x;
}

// Returns the factor, in the precision in which it is stored. If the arithmetic divides instead,
// returns 1.
double FactorOf(const Arithmetic& a, int ranks) {
  const double reciprocal = 1.0 / ranks;
  switch (a.averaging) {
    case Averaging::kPreReciprocal:
    case Averaging::kPostReciprocal:
      return static_cast<double>(static_cast<float>(reciprocal));
    case Averaging::kPreMultiplied:
    case Averaging::kPostMultiplied:
      return RoundToFormat(reciprocal, a.wire);
    default:
      return 1;
  }
}

bool Divides(Averaging averaging) {
  return averaging == Averaging::kPreDivided || averaging == Averaging::kPostDivided;
}

double Scaled(const Arithmetic& a, double x, int ranks, DType into) {
  const double exact = Divides(a.averaging) ? x / ranks : x * FactorOf(a, ranks);
  // Narrow formats divide in f32 and round again, as hardware without a narrow division does.
  const bool through_f32 = FormatOf(into).precision < 24;
  const double held = through_f32 ? static_cast<double>(static_cast<float>(exact)) : exact;
  const double r = RoundToFormat(held, into, ModeOf(a.rounding));
  return a.flush == Flush::kNone ? r : FlushSubnormal(r, into);
}

}  // namespace

const char* RoundingName(const Arithmetic& a) {
  if (a.wide() && a.store_rounding == StoreRounding::kAwayFromZero) return "away-from-zero";
  const bool truncates = a.wide() ? a.store_rounding == StoreRounding::kTowardZero
                                  : a.rounding != HopRounding::kNearest;
  return truncates ? "toward-zero" : "nearest";
}

const char* AveragingName(Averaging averaging) {
  switch (averaging) {
    case Averaging::kNone:
      return "none";
    case Averaging::kPreDivided:
    case Averaging::kPreReciprocal:
      return "pre-divided";
    case Averaging::kPreMultiplied:
      return "pre-multiplied";
    case Averaging::kPostDivided:
    case Averaging::kPostReciprocal:
      return "post-divided";
    case Averaging::kPostMultiplied:
      return "post-multiplied";
  }
  return "?";
}

const char* FlushName(Flush flush) {
  switch (flush) {
    case Flush::kNone:
      return "none";
    case Flush::kResults:
      return "results";
    case Flush::kAll:
      return "inputs and results";
  }
  return "?";
}

AddBlock<float> FloatAdder(DType partial, HopRounding rounding, bool flush) {
  switch (partial) {
    case DType::kF16:
      return AdderOf<DType::kF16>(rounding, flush);
    case DType::kBF16:
      return AdderOf<DType::kBF16>(rounding, flush);
    case DType::kE4M3:
      return AdderOf<DType::kE4M3>(rounding, flush);
    case DType::kE5M2:
      return AdderOf<DType::kE5M2>(rounding, flush);
    default:
      return AdderOf<DType::kF32>(rounding, flush);
  }
}

AddBlock<double> DoubleAdder(HopRounding rounding) {
  return rounding == HopRounding::kNearest ? AddDouble : AddDoubleTruncated;
}

double EnterSum(const Arithmetic& a, double x, int ranks) {
  double v = RoundToFormat(x, a.wire);
  if (a.flush == Flush::kAll) v = FlushSubnormal(v, a.wire);
  if (!a.pre()) return v;
  return Scaled(a, v, ranks, a.wide() && a.through_wire ? a.wire : a.partial);
}

double LeaveSum(const Arithmetic& a, double sum, int ranks) {
  double v = sum;
  if (a.post()) {
    const DType held = a.wide() && a.through_wire ? a.store : a.partial;
    if (a.wide() && a.through_wire) v = RoundToFormat(v, a.store, StoreMode(a, v));
    v = Scaled(a, v, ranks, held);
  }
  return RoundToFormat(v, a.store, StoreMode(a, v));
}

RoundingMode StoreMode(const Arithmetic& a, double sum) {
  switch (a.store_rounding) {
    case StoreRounding::kNearest:
      return RoundingMode::kNearestEven;
    case StoreRounding::kTowardZero:
      return RoundingMode::kTowardZero;
    case StoreRounding::kAwayFromZero:
      break;
  }
  return sum < 0 ? RoundingMode::kDown : RoundingMode::kUp;
}

bool LeavesAsIs(const Arithmetic& a) {
  return !a.post() && FormatOf(a.store).precision >= FormatOf(a.partial).precision &&
         FormatOf(a.store).min_exponent <= FormatOf(a.partial).min_exponent;
}

double HopSum(const Arithmetic& a, double x, double y) {
  if (a.partial == DType::kF64) {
    DoubleAdder(a.rounding)(&x, &y, 1);
    return x;
  }
  auto acc = static_cast<float>(x);
  const auto addend = static_cast<float>(y);
  FloatAdder(a.partial, a.rounding, a.flush != Flush::kNone)(&acc, &addend, 1);
  return static_cast<double>(acc);
}

}  // namespace plumbline::analysis
