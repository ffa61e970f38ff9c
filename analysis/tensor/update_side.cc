#include "analysis/tensor/update_side.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/exact_sum.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kFewRounded = 64, kFewInformative = 16, kListed = 3;
constexpr double kMatched = 0.99;
const double kLogChance = std::log(1e-9);

struct Side {
  const char* words;
  RoundingMode mode;
  bool away = false;  // from zero, which is not a separate rounding mode
};
constexpr std::array<Side, 4> kSides = {{{"toward zero", RoundingMode::kTowardZero},
                                         {"away from zero", RoundingMode::kUp, true},
                                         {"down", RoundingMode::kDown},
                                         {"up", RoundingMode::kUp}}};

// before + intended of one element, and the neighbouring values.
struct Target {
  double below, above, nearest;
  double up_share;             // its position between them
  double low_part, high_part;  // its distances to them
  bool positive;
};

// Returns false if the sum is a value of the dtype, or overflows.
bool Between(double before, double intended, DType dtype, Target* t) {
  ExactSum sum;
  sum.Add(before);
  sum.Add(intended);
  t->below = sum.RoundTo(dtype, RoundingMode::kDown);
  t->above = sum.RoundTo(dtype, RoundingMode::kUp);
  t->nearest = sum.RoundTo(dtype);
  if (t->below == t->above || !std::isfinite(t->below) || !std::isfinite(t->above)) return false;
  ExactSum low = sum, high;
  low.Subtract(t->below);
  high.Add(t->above);
  high.Subtract(sum);
  t->low_part = low.Value();
  t->high_part = high.Value();
  t->up_share = t->low_part / (t->above - t->below);
  t->positive = sum.Sign() > 0;
  return true;
}

bool TakesUpper(const Side& side, bool positive) {
  if (side.away) return positive;
  if (side.mode == RoundingMode::kTowardZero) return !positive;
  return side.mode == RoundingMode::kUp;
}

class SideCount {
 public:
  explicit SideCount(const Side& side) : side_(side) { out_.side = side.words; }

  void Take(size_t i, const Target& t, double before, double after) {
    ++out_.rounded;
    const bool upper = TakesUpper(side_, t.positive);
    const double value = upper ? t.above : t.below;
    const bool matches = after == value;
    // Probability under stochastic rounding of this side, or of the other one if that was chosen.
    const double chance = upper == matches ? t.up_share : 1 - t.up_share;
    out_.log_chance += std::log(std::max(chance, 1e-12));
    if (!matches) return;
    ++out_.matched;
    moved_ += after != before;
    drift_ += upper ? t.high_part : t.low_part;
    if (value == t.nearest) return;
    ++out_.informative;
    if (out_.listed.size() < kListed) out_.listed.push_back(i);
  }

  bool Holds() const {
    return out_.rounded >= kFewRounded && out_.informative >= kFewInformative &&
           moved_ >= kFewInformative &&
           static_cast<double>(out_.matched) >= kMatched * static_cast<double>(out_.rounded) &&
           out_.log_chance < kLogChance;
  }

  OneSidedStore Get(double intended) const {
    OneSidedStore out = out_;
    out.drift = intended > 0 ? drift_ / intended : INFINITY;
    return out;
  }

 private:
  const Side& side_;
  OneSidedStore out_;
  double drift_ = 0;
  size_t moved_ = 0;  // stays 0 if the step was skipped
};

}  // namespace

OneSidedStore FindOneSidedStore(const UpdateCase& c) {
  std::vector<SideCount> counts;
  for (const Side& side : kSides) counts.emplace_back(side);
  double intended = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!std::isfinite(c.before[i]) || !std::isfinite(c.intended[i]) || !std::isfinite(c.after[i]))
      continue;
    intended += std::fabs(c.intended[i]);
    Target t;
    if (!Between(c.before[i], c.intended[i], c.dtype, &t)) continue;
    for (SideCount& count : counts) count.Take(i, t, c.before[i], c.after[i]);
  }
  for (const SideCount& count : counts) {
    if (count.Holds()) return count.Get(intended);
  }
  return {};
}

}  // namespace plumbline::analysis
