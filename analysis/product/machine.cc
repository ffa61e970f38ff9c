#include "analysis/product/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "analysis/product/lanes.h"
#include "analysis/sums/sums.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

using MachineKind = MatmulModel::Sum;

// Returns what a + b loses when it is rounded to a double (Knuth's TwoSum).
double Lost(double a, double b, double sum) {
  const double from_b = sum - a;
  return (a - (sum - from_b)) + (b - from_b);
}

int Exponent(double x) {
  return static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7ff) - 1023;
}

// Round a double once into f32.
float Nearest(double x) { return static_cast<float>(x); }
float TowardZero(double x) {
  const auto f = static_cast<float>(x);
  if (std::isinf(f) && std::isfinite(x)) return std::copysign(std::numeric_limits<float>::max(), f);
  return std::abs(static_cast<double>(f)) > std::abs(x) ? std::nextafter(f, 0.0f) : f;
}

double RoundSum(double x, DType dtype, RoundingMode mode) {
  if (dtype != DType::kF32) return RoundToFormat(x, dtype, mode);
  return mode == RoundingMode::kTowardZero ? TowardZero(x) : Nearest(x);
}

// Returns a + b, both of `dtype`, rounded once.
double Add(double a, double b, DType dtype, RoundingMode mode) {
  if (dtype == DType::kF64) return a + b;
  if (dtype != DType::kF32) return RoundedSum(a, b, dtype);
  if (mode == RoundingMode::kTowardZero) return AddTowardZero(static_cast<float>(a), b);
  return static_cast<float>(a) + static_cast<float>(b);
}

// ---- aligned blocks ----------------------------------------------------------------------------

// Adds the terms of the block, in units of 2^-F of the largest, cut.
template <bool kFloored>
int64_t AlignedSum(const double* p, int n, double scale) {
  int64_t sum = 0;
  for (int k = 0; k < n; ++k) {
    const double x = p[k] * scale;
    sum += kFloored ? static_cast<int64_t>(std::floor(x)) : static_cast<int64_t>(x);
  }
  return sum;
}

// Returns the first `kept` significand bits of x.
double KeepBits(double x, int kept) {
  const uint64_t lost = (uint64_t{1} << (53 - kept)) - 1;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~lost);
}

template <bool kFloored>
double Aligned(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start) {
  const int g = m.block, least = FormatOf(m.accumulator).min_exponent;
  double acc = start;
  for (int at = first; at < last && std::isfinite(acc); at += std::min(g, last - at)) {
    const int end = std::min(at + g, last);
    int32_t e = t.BlockExponent(g, at, end);
    if (m.addend_inside && acc != 0) e = std::max(e, std::max(Exponent(acc), least));
    if (e == kNoExponent) continue;
    // |terms| < 2^(F+2), so 65 of them fit a 64-bit integer, and their sum is exact in a double.
    const double scale = PowerOfTwo(m.fraction_bits - e);
    int64_t sum = AlignedSum<kFloored>(&t.product[static_cast<size_t>(at)], end - at, scale);
    if (m.addend_inside) sum += AlignedSum<kFloored>(&acc, 1, scale);
    const double block = RoundSum(static_cast<double>(sum) * PowerOfTwo(e - m.fraction_bits),
                                  m.accumulator, m.rounding);
    acc = m.addend_inside ? block : Add(acc, block, m.accumulator, m.rounding);
    if (m.kept > 0) acc = KeepBits(acc, m.kept);
  }
  return acc;
}

double ExactRun(const MatmulModel& m, const MatmulTerms& t, int first, int last, double start) {
  ExactSum sum;
  if (first == 0 && last == t.size) {
    sum = t.exact;
  } else {
    for (int k = first; k < last; ++k) sum.Add(t.product[static_cast<size_t>(k)]);
  }
  sum.Add(start);
  return sum.RoundTo(m.accumulator, m.rounding);
}

}  // namespace

float AddNearest(float a, double b) {
  double s = a + b;
  // Round to odd first, so that the second rounding sees on which side of a tie the sum lies (Boldo
  // and Melquiond 2008).
  const double lost = Lost(a, b, s);
  if (lost != 0 && (std::bit_cast<uint64_t>(s) & 1) == 0)
    s = std::nextafter(s, lost > 0 ? kInfinity : -kInfinity);
  return static_cast<float>(s);
}

float AddTowardZero(float a, double b) {
  const double s = a + b;
  const auto f = static_cast<float>(s);
  if (!std::isfinite(f)) return TowardZero(s);
  const double lost = Lost(a, b, s), value = f;
  // True if |f| exceeds |s + lost|.
  const bool beyond =
      std::abs(value) > std::abs(s) || (value == s && lost != 0 && (lost > 0) != (s > 0));
  return beyond ? std::nextafter(f, 0.0f) : f;
}

double MatmulMachine::Sequential(const MatmulModel& m, const MatmulTerms& t, int first, int last,
                                 double start) {
  const double* p = &t.product[0];
  if (m.accumulator == DType::kF32) {
    auto acc = static_cast<float>(start);
    const bool zero = m.rounding == RoundingMode::kTowardZero;
    for (int k = first; k < last; ++k) {
      const auto at = static_cast<size_t>(k);
      if (zero) {
        acc = AddTowardZero(acc, m.fused ? p[at] : TowardZero(p[at]));
      } else {
        acc = m.fused ? AddNearest(acc, p[at]) : acc + t.product32[at];
      }
    }
    return acc;
  }
  double acc = start;
  for (int k = first; k < last; ++k) {
    const double x = m.fused ? p[k] : RoundToFormat(p[k], m.accumulator);
    acc = Add(acc, x, m.accumulator, m.rounding);
  }
  return acc;
}

// Rounds every operation to the accumulator's format.
double MatmulMachine::Compensated(const MatmulModel& m, const MatmulTerms& t, double start) {
  const DType dtype = m.accumulator;
  const auto add = [&](double a, double b) { return Add(a, b, dtype, RoundingMode::kNearestEven); };
  double sum = start, lost = 0;
  for (int k = 0; k < t.size; ++k) {
    const double x = RoundSum(t.product[static_cast<size_t>(k)], dtype, RoundingMode::kNearestEven);
    if (m.compensation == MatmulModel::Compensation::kKahan) {
      const double y = add(x, -lost), next = add(sum, y);
      lost = add(add(next, -sum), -y);
      sum = next;
    } else {
      const double next = add(sum, x);
      const bool larger = std::abs(sum) >= std::abs(x);
      lost = add(lost, larger ? add(add(sum, -next), x) : add(add(x, -next), sum));
      sum = next;
    }
  }
  return m.compensation == MatmulModel::Compensation::kKahan ? sum : add(sum, lost);
}

double MatmulMachine::Pairwise(const MatmulModel& m, const MatmulTerms& t, int first, int last) {
  MatmulModel leaf = m;
  leaf.sum = MachineKind::kSequential;
  leaf.fused = false;
  const auto add = [&](double a, double b) { return Add(a, b, m.accumulator, m.rounding); };
  if (m.tree == MatmulModel::Tree::kHalves) {
    const auto halves = [&](const auto& self, int lo, int hi) -> double {
      if (hi - lo <= m.leaf) return Sequential(leaf, t, lo, hi, 0);
      const int middle = lo + (hi - lo) / 2;
      const double left = self(self, lo, middle);
      return add(left, self(self, middle, hi));
    };
    return halves(halves, first, last);
  }
  level_.clear();
  for (int lo = first; lo < last; lo += m.leaf)
    level_.push_back(Sequential(leaf, t, lo, std::min(lo + m.leaf, last), 0));
  while (level_.size() > 1) {
    const size_t pairs = level_.size() / 2, odd = level_.size() % 2;
    for (size_t i = 0; i < pairs; ++i) level_[i] = add(level_[2 * i], level_[2 * i + 1]);
    if (odd != 0) level_[pairs] = level_.back();
    level_.resize(pairs + odd);
  }
  return level_.empty() ? 0 : level_[0];
}

double MatmulMachine::Run(const MatmulModel& m, const MatmulTerms& t, int first, int last,
                          double start) {
  switch (m.sum) {
    case MachineKind::kExact:
      return ExactRun(m, t, first, last, start);
    case MachineKind::kSequential:
      if (m.compensation != MatmulModel::Compensation::kNone) return Compensated(m, t, start);
      return Sequential(m, t, first, last, start);
    case MachineKind::kPairwise: {
      const double sum = Pairwise(m, t, first, last);
      return start == 0 ? sum : Add(start, sum, m.accumulator, m.rounding);
    }
    case MachineKind::kAligned:
      return m.floored ? Aligned<true>(m, t, first, last, start)
                       : Aligned<false>(m, t, first, last, start);
  }
  return 0;
}

namespace {

// Returns the number of products that are summed separately. If there is only one sum, returns 0.
int Chunk(const MatmulModel& m) { return m.part > 0 ? m.part : m.promote; }

// Returns the sum so far plus a block's sum, which is scaled.
double AfterBlock(const MatmulModel& m, const MatmulTerms& t, double acc, double sum,
                  size_t block) {
  const double a = t.a_scale[block], b = t.b_scale[block];
  const auto scale = static_cast<float>(a * b);
  if (m.blocks == BlockScaling::kFused) return AddNearest(static_cast<float>(acc), sum * scale);
  const float scaled = m.blocks == BlockScaling::kTwice
                           ? Nearest(static_cast<double>(Nearest(sum * a)) * b)
                           : Nearest(sum * scale);
  return static_cast<float>(acc) + scaled;
}

// Returns the sum of the chunks so far plus one more. `first` is true if nothing has been added
// yet.
double AfterChunk(const MatmulModel& m, double acc, double sum, bool first) {
  if (m.part == 0) return static_cast<float>(acc) + static_cast<float>(sum);
  const double part = RoundToFormat(sum, m.part_dtype);
  return first ? part : Add(acc, part, m.reduce_dtype, RoundingMode::kNearestEven);
}

// Adds the addend to a finished sum.
double AddLast(const MatmulModel& m, double sum, double c) {
  return Add(RoundSum(sum, m.accumulator, m.rounding), c, m.accumulator,
             RoundingMode::kNearestEven);
}

bool SumsInLanes(const MatmulModel& m, const MatmulTerms& t, double start,
                 std::span<const int> fraction_bits, double* sums) {
  if (!FitsLanes(m)) return false;
  const int chunk = Chunk(m);
  if (chunk == 0) return AlignedRun(m, t, 0, t.size, start, fraction_bits, sums);
  std::fill_n(sums, fraction_bits.size(), start);
  std::array<double, kAlignedLanes> of_chunk;
  for (int at = 0; at < t.size; at += std::min(chunk, t.size - at)) {
    const int end = at + std::min(chunk, t.size - at);
    if (!AlignedRun(m, t, at, end, 0, fraction_bits, of_chunk.data())) return false;
    const auto block = static_cast<size_t>(at / chunk);
    for (size_t i = 0; i < fraction_bits.size(); ++i)
      sums[i] = m.scales_sums() ? AfterBlock(m, t, sums[i], of_chunk[i], block)
                                : AfterChunk(m, sums[i], of_chunk[i], at == 0 && start == 0);
  }
  return true;
}

}  // namespace

double MatmulMachine::Chunked(const MatmulModel& m, const MatmulTerms& t, double start) {
  double acc = start;
  for (int at = 0, chunk = Chunk(m); at < t.size; at += std::min(chunk, t.size - at)) {
    const double sum = Run(m, t, at, at + std::min(chunk, t.size - at), 0);
    acc = m.scales_sums() ? AfterBlock(m, t, acc, sum, static_cast<size_t>(at / chunk))
                          : AfterChunk(m, acc, sum, at == 0 && start == 0);
  }
  return acc;
}

double MatmulMachine::Sum(const MatmulModel& m, const MatmulTerms& t, double c) {
  const double start = m.addend_last ? 0 : c;
  const double sum = Chunk(m) > 0 ? Chunked(m, t, start) : Run(m, t, 0, t.size, start);
  return m.addend_last ? AddLast(m, sum, c) : sum;
}

double MatmulMachine::Result(const MatmulModel& m, double sum, const MatmulCase& c, int i) {
  if (c.scale.empty()) return Store(m, sum, c.d_dtype);
  const auto at = static_cast<size_t>(i);
  const double addend = c.c.empty() ? 0 : c.c[at], scale = static_cast<float>(c.scale[at]);
  // In f64 no intermediate value is rounded to f32.
  if (m.accumulator == DType::kF64) return Store(m, sum * c.scale[at] + addend, c.d_dtype);
  if (m.scaling == Scaling::kOnce) {
    ExactSum whole;  // at most 48 bits, and the addend
    if (!std::isfinite(sum)) return Store(m, sum * scale, c.d_dtype);
    whole.Add(sum * scale);
    whole.Add(addend);
    return whole.RoundTo(c.d_dtype, m.store);
  }
  const float scaled =
      m.scaling == Scaling::kTwice
          ? Nearest(static_cast<double>(Nearest(sum * c.scale_a[at])) * c.scale_b[at])
          : Nearest(sum * scale);
  return Store(m, scaled + static_cast<float>(addend), c.d_dtype);
}

void MatmulMachine::Sums(const MatmulModel& m, const MatmulTerms& t, double c,
                         std::span<const int> fraction_bits, double* sums) {
  if (SumsInLanes(m, t, m.addend_last ? 0 : c, fraction_bits, sums)) {
    for (size_t i = 0; m.addend_last && i < fraction_bits.size(); ++i)
      sums[i] = AddLast(m, sums[i], c);
    return;
  }
  MatmulModel one = m;
  for (size_t i = 0; i < fraction_bits.size(); ++i) {
    one.fraction_bits = fraction_bits[i];
    sums[i] = Sum(one, t, c);
  }
}

// ---- bounds ------------------------------------------------------------------------------------

namespace {

// Returns the relative error of one rounding to f32.
double Unit(RoundingMode mode) {
  return mode == RoundingMode::kTowardZero ? PowerOfTwo(-23) : PowerOfTwo(-24);
}

// In sequence: err_k <= err_{k-1} + u |p_k| + u (|prefix_k| + err_{k-1} + u |p_k|), so err_K <=
// (1+u)^K u sum(|prefix_k| + (1+u)|p_k|). Subnormal roundings add 2^-149 each.
double SequentialBound(double u, int n, double prefix_sum, double total) {
  return std::exp(1.01 * u * n) * u * (prefix_sum + 1.01 * total) + 2 * n * PowerOfTwo(-149);
}

// Blocks: each cuts at most g + 1 terms by less than 2^(e-F), and 2^e <= max(2^exponent of the
// products, |accumulator|) <= the block's scale + err so far. The roundings of the block's sum (at
// most twice its scale) and of the accumulator add 3u of that. With q = (g+1) 2^-F + 3u and S the
// sum of scales over the nb blocks, err <= q (S + nb err).
double AlignedBound(const MatmulModel& m, double u, double scale, double blocks) {
  const double q = (m.block + 1) * PowerOfTwo(-m.fraction_bits) + 3 * u;
  if (!(q * blocks < 0.5)) return kInfinity;
  return q * scale / (1 - q * blocks) + 3 * blocks * PowerOfTwo(-149);
}

double RunBound(const MatmulModel& m, const MatmulTerms& t, double c, double exact) {
  const double u = Unit(m.rounding);
  switch (m.sum) {
    case MachineKind::kExact:
      return u * exact + PowerOfTwo(-149);
    case MachineKind::kSequential:
      return SequentialBound(u, t.size, t.prefix_sum + t.size * c, t.total);
    case MachineKind::kPairwise: {
      // Every product passes at most `depth` roundings of sums that contain it.
      const double depth = m.leaf + std::ceil(std::log2(static_cast<double>(t.size))) + 2;
      if (!(depth * u < 0.01)) return kInfinity;
      return 1.02 * depth * u * (t.total + c) + 2 * t.size * PowerOfTwo(-149);
    }
    case MachineKind::kAligned: {
      const int level = BlockIndex(m.block);
      if (level < 0) return kInfinity;
      const int whole = (t.size + m.block - 1) / m.block;
      const double blocks = whole;
      return AlignedBound(m, u, t.block_scale[static_cast<size_t>(level)] + blocks * c, blocks);
    }
  }
  return kInfinity;
}

}  // namespace

double ErrorBound(const MatmulModel& m, const MatmulTerms& t, double c) {
  // If a partial sum might overflow, or if sums keep few bits, no useful bound is known.
  constexpr double kSafe = 1e38;
  c = std::abs(c);
  const bool one_run = m.part == 0 && m.promote == 0;
  if (m.accumulator != DType::kF32 || !one_run || m.kept > 0 || !(t.total + c < kSafe) ||
      m.compensation != MatmulModel::Compensation::kNone)
    return kInfinity;
  const double exact = t.prefix_most + c;
  const double bound = RunBound(m, t, m.addend_last ? 0 : c, exact);
  // The addend, and a margin for the rounding of these doubles.
  const double last = m.addend_last ? Unit(RoundingMode::kNearestEven) * (exact + bound) * 2 : 0;
  return 1.001 * (bound + last) + 1e-12 * (t.total + c);
}

}  // namespace plumbline::analysis
