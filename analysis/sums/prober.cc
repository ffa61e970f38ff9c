#include "analysis/sums/prober.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/sums/node_view.h"
#include "analysis/sums/random.h"
#include "base/half.h"

namespace plumbline::sums {
namespace {

struct Exponents {
  int big;
  int unit;
};

int Exponent(double x) { return std::ilogb(x); }

// Returns pairs from the widest to the narrowest, because an accumulator may have less range than
// the factors.
std::vector<Exponents> PairsOf(const Target& target) {
  const FloatFormat in = FormatOf(target.input);
  const FloatFormat out = FormatOf(target.output);
  const int factors = HasProducts(target.kind) ? 2 : 1;
  const int top = factors * (Exponent(in.max_finite));
  const int bottom_out = out.min_exponent - out.precision + 1;
  const int normal = factors * in.min_exponent;
  const int subnormal = factors * (in.min_exponent - in.precision + 1);
  std::vector<Exponents> pairs;
  for (const int big : {std::min(top, 1000), std::min(top, 126), std::min(top, 15)}) {
    for (const int low : {normal, subnormal}) {
      const int unit = std::max({low, bottom_out, big >= 100 ? 0 : low});
      pairs.push_back({big, unit});
    }
  }
  return pairs;
}

// Tests with 2^k, 1 and -2^k units on three leaves whether the one unit is always left.
absl::StatusOr<bool> Keeps(Prober* prober, double unit, int k, Random* random) {
  const int n = prober->target().n;
  constexpr int kTriples = 12;
  for (int t = 0; t < kTriples; ++t) {
    int leaf[3];
    leaf[0] = random->Below(n);
    do leaf[1] = random->Below(n);
    while (leaf[1] == leaf[0]);
    do leaf[2] = random->Below(n);
    while (leaf[2] == leaf[0] || leaf[2] == leaf[1]);
    for (int turn = 0; turn < 3; ++turn) {
      prober->Fill(0);
      prober->Set(leaf[turn], std::ldexp(unit, k));
      prober->Set(leaf[(turn + 1) % 3], unit);
      prober->Set(leaf[(turn + 2) % 3], -std::ldexp(unit, k));
      const auto y = prober->Call();
      if (!y.ok()) return y.status();
      if (!(*y == unit)) return false;
    }
  }
  return true;
}

// Returns how many units can be counted, limited by the output and by the accumulator.
absl::StatusOr<int> Capacity(Prober* prober, double unit, Random* random) {
  const int n = prober->target().n;
  const int output = FormatOf(prober->target().output).precision;
  int needed = 0;
  while ((1 << needed) < n) ++needed;
  if (n < 3) return needed;
  for (int k = 1; k < std::min(needed, output); ++k) {
    const auto kept = Keeps(prober, unit, k, random);
    if (!kept.ok()) return kept.status();
    if (!*kept) return k;
  }
  return std::min(needed, output);
}

// Tests whether every partial sum of units is lost next to the large value. If a sum has every bit
// set, down to its last unit, the result contains all of it or nothing of it, never a rounded part.
absl::StatusOr<bool> Absorbs(Prober* prober, const ProbeScale& scale, Random* random) {
  const int n = prober->target().n;
  const int bits = std::min(scale.capacity_log2, FormatOf(prober->target().input).precision);
  const double units = (std::ldexp(1.0, bits) - 1) * std::ldexp(1.0, scale.capacity_log2 - bits);
  const double sum = units * scale.unit;
  constexpr int kTriples = 24;
  for (int t = 0; t < kTriples; ++t) {
    prober->Fill(0);
    const int at = random->Below(n - 2);
    const int step = 1 + random->Below((n - 1 - at) / 2);
    const int leaf[3] = {at, at + step, at + 2 * step};
    prober->Set(leaf[t % 3], scale.big);
    prober->Set(leaf[(t + 1) % 3], sum);
    prober->Set(leaf[(t + 2) % 3], -scale.big);
    const auto y = prober->Call();
    if (!y.ok()) return y.status();
    if (!(*y == 0 || *y == sum)) return false;
  }
  return true;
}

// Masks some pairs of leaves. Returns 1 if counts are integers and something was lost, 0 if nothing
// was ever lost, -1 if there are no counts.
absl::StatusOr<int> TryPairs(Prober* prober, const ProbeScale& scale, Random* random) {
  const int n = prober->target().n;
  const int ones = std::min(n, 1 << std::min(scale.capacity_log2, 20));
  constexpr int kPairs = 16;
  bool lost = false;
  prober->Fill(0);  // units alone must add up
  for (int k = 0; k < ones; ++k) prober->Set(k, scale.unit);
  const auto all = prober->Call();
  if (!all.ok()) return all.status();
  if (!(*all == ones * scale.unit)) return -1;
  for (int t = 0; t < kPairs; ++t) {
    const int i = random->Below(n);
    int j = random->Below(n - 1);
    if (j >= i) ++j;
    prober->Fill(0);
    const int start = random->Below(n);
    int set = 0;
    for (int k = 0; k < n && set < ones; ++k) {
      const int leaf = (start + k) % n;
      if (leaf == i || leaf == j) continue;
      prober->Set(leaf, scale.unit);
      ++set;
    }
    prober->Set(i, scale.big);
    prober->Set(j, -scale.big);
    const auto y = prober->Call();
    if (!y.ok()) return y.status();
    const int count = scale.CountIn(*y, set);
    if (count < 0) return -1;
    lost = lost || count < set;
  }
  return lost ? 1 : 0;
}

// Tries counts below the last bits of an accumulator of `precision` bits. masks: whether that
// works.
absl::StatusOr<ProbeScale> ModularScale(Prober* prober, int precision, Random* random) {
  ProbeUnit room = UnitOf(prober->target());
  room = {room.unit / 4, room.room + 2};  // this probe uses no halves of the unit
  const int shown = std::min(precision, FormatOf(prober->target().output).precision);
  ProbeScale scale{.unit = room.unit, .masks = false};
  const auto capacity = Capacity(prober, scale.unit, random);
  if (!capacity.ok()) return capacity.status();
  // The moves of big, |moves| < 2^(capacity + 1) multiples of 2^(capacity + 1), must fit the
  // output.
  scale.capacity_log2 = std::min(*capacity, (shown - 2) / 2);
  scale.modulus_log2 = scale.capacity_log2 + 1;
  if (precision + scale.modulus_log2 > room.room) return scale;
  scale.big = std::ldexp(scale.unit, precision + scale.modulus_log2);
  const auto masks = TryPairs(prober, scale, random);
  if (!masks.ok()) return masks.status();
  scale.masks = *masks == 1;
  return scale;
}

}  // namespace

int ProbeScale::CountIn(double y, int most) const {
  double count = y / unit;
  if (modulus_log2 > 0) {
    // If there are more moves than units, the last bits are those of another format, and there is
    // no count.
    if (!(std::abs(count) <= std::ldexp(1.0, 2 * modulus_log2))) return -1;
    const double modulus = std::ldexp(1.0, modulus_log2);
    count -= modulus * std::floor(count / modulus);
  }
  return count >= 0 && count <= most && count == std::floor(count) ? static_cast<int>(count) : -1;
}

Prober::Prober(const Target& target)
    : target_(target), a_(static_cast<size_t>(target.n)), b_(a_.size(), 1.0) {}

void Prober::SetFactors(int i, double a, double b) {
  a_[static_cast<size_t>(i)] = a;
  b_[static_cast<size_t>(i)] = b;
}

void Prober::Set(int i, double value) {
  if (!HasProducts(target_.kind) || value == 0) return SetFactors(i, value, 1);
  const int half = std::ilogb(value) / 2;
  SetFactors(i, std::ldexp(value, -half), std::ldexp(1.0, half));
}

void Prober::Fill(double value) {
  for (int i = 0; i < target_.n; ++i) Set(i, value);
}

absl::StatusOr<double> Prober::Call() { return Call(a_, b_); }

absl::StatusOr<double> Prober::Call(absl::Span<const double> a, absl::Span<const double> b) {
  ++calls_;
  double y = 0;
  if (absl::Status s = target_.call(a, b, &y); !s.ok()) return failure_ = s;
  return y;
}

absl::StatusOr<ProbeScale> ChooseScale(Prober* prober, uint64_t seed) {
  Random random(seed);
  bool exact = false;
  ProbeScale whole;
  std::string tried;
  for (const Exponents& pair : PairsOf(prober->target())) {
    ProbeScale scale{std::ldexp(1.0, pair.big), std::ldexp(1.0, pair.unit)};
    const auto capacity = Capacity(prober, scale.unit, &random);
    if (!capacity.ok()) return capacity.status();
    scale.capacity_log2 = *capacity;
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", "2^", pair.big, " over 2^", pair.unit);
    const auto absorbs = Absorbs(prober, scale, &random);
    if (!absorbs.ok()) return absorbs.status();
    if (!*absorbs) continue;
    const auto masks = TryPairs(prober, scale, &random);
    if (!masks.ok()) return masks.status();
    if (*masks == 1) return scale;
    if (*masks == 0 && !exact) {
      exact = true;
      whole = scale;
    }
  }
  if (exact) {
    whole.masks = false;
    return whole;
  }
  for (const DType accumulator : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    auto scale = ModularScale(prober, FormatOf(accumulator).precision, &random);
    if (!scale.ok()) return scale.status();
    if (scale->masks) return scale;
    absl::StrAppend(&tried, ", counts below the last bits of ", DTypeName(accumulator));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no pair of magnitudes gives whole counts; expected the number of addends that "
                   "remain after a large value and its negative; tried ",
                   tried));
}

}  // namespace plumbline::sums
