// Correct sums that were recorded incorrectly: the results changed before the recording, or the
// inputs after it. Over many 16-bit ranks, the bound for arbitrary summation order accepts nearly
// all of them, although all of them are biased.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/rules/attack/collective_families.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;
using Change = std::function<void(Recorded&, Dice&)>;

double Exact(const Values& x) {
  long double sum = 0;
  for (const double v : x) sum += v;
  return static_cast<double>(sum);
}

Recorded ManyRanks(Dice& dice) {
  Recorded call = DrawCall(dice);
  call.ranks = dice.One({32, 64, 128, 256, 512});
  call.input = dice.One({DType::kBF16, DType::kBF16, DType::kF16});
  return call;
}

// Returns `call` with its results filled in as sums in f32.
Recorded Summed(Recorded call, Dice& dice) {
  const Sum exact = [](const Values& x, const Recorded&, Dice&) {
    return RoundToFormat(Exact(x), DType::kF32);
  };
  return Filled(std::move(call), exact, dice);
}

void Store(Recorded& call) {
  for (double& y : call.output) y = RoundToFormat(y, call.input);
}

// Returns a change that applies `change` to the addends of each column and recomputes the results.
Change Inputs(std::function<void(Values&, const Values& factors, Dice&)> change) {
  return [change = std::move(change)](Recorded& call, Dice& dice) {
    Values factors;
    for (int r = 0; r < call.ranks; ++r) factors.push_back(dice.Uniform());
    for (size_t i = 0; i < call.columns.size(); ++i) {
      Values x = call.columns[i];
      change(x, factors, dice);
      call.output[i] = Exact(x);
    }
  };
}

Change Each(std::function<double(double y, double largest, Dice&)> change) {
  return [change = std::move(change)](Recorded& call, Dice& dice) {
    double largest = 0;
    for (const double y : call.output) largest = std::max(largest, std::fabs(y));
    for (double& y : call.output) y = change(y, largest, dice);
  };
}

std::vector<std::pair<const char*, Change>> Changes() {
  const auto cut = [](double share) {
    return Each([share](double y, double largest, Dice&) {
      return std::clamp(y, -share * largest, share * largest);
    });
  };
  return {
      {"cut-at-half", cut(0.5)},
      {"cut-at-a-tenth", cut(0.1)},
      {"cut-from-above",
       Each([](double y, double largest, Dice&) { return std::min(y, 0.2 * largest); })},
      {"softly-cut", Each([](double y, double largest, Dice&) {
         return largest == 0 ? y : largest / 2 * std::tanh(2 * y / largest);
       })},
      {"shrunk-by-a-threshold", Each([](double y, double largest, Dice&) {
         return std::copysign(std::max(0.0, std::fabs(y) - 0.1 * largest), y);
       })},
      {"small-ones-zeroed",
       Each([](double y, double largest, Dice&) { return std::fabs(y) < largest / 4 ? 0 : y; })},
      {"dropped-out", Each([](double y, double, Dice& d) { return d.Uniform() < 0.3 ? 0 : y; })},
      {"noise-added",
       Each([](double y, double largest, Dice& d) { return y + 0.1 * largest * d.Normal(); })},
      {"stored-in-8-bits-below", Each([](double y, double, Dice&) {
         return RoundToFormat(y, DType::kE5M2, RoundingMode::kTowardZero);
       })},
      {"a-few-scaled",
       Each([](double y, double, Dice& d) { return y * (d.Uniform() < 0.5 ? 0.7 : 0.9); })},
      {"ranks-clipped-apart", Inputs([](Values& x, const Values& factors, Dice&) {
         for (size_t r = 0; r < x.size(); ++r) x[r] *= std::min(1.0, 0.3 + factors[r]);
       })},
      {"a-rank-left-out", Inputs([](Values& x, const Values&, Dice&) { x[x.size() / 2] = 0; })},
      {"half-of-the-ranks",
       Inputs([](Values& x, const Values&, Dice&) { x.resize(x.size() / 2); })},
      {"values-cut-before", Inputs([](Values& x, const Values&, Dice&) {
         for (double& v : x) v = std::clamp(v, -0.5, 0.5);
       })},
      {"ranks-dropped-out", Inputs([](Values& x, const Values&, Dice& d) {
         for (double& v : x) v = d.Uniform() < 0.2 ? 0 : v;
       })},
      {"weights-decayed-after", Inputs([](Values& x, const Values& factors, Dice&) {
         for (size_t r = 0; r < x.size(); ++r) x[r] -= 0.05 * factors[r];
       })},
  };
}

ArithmeticFamily Once(const std::string& name, const Change& change) {
  const auto make = [change](Dice& dice) -> Attempt {
    Recorded call = Summed(ManyRanks(dice), dice);
    change(call, dice);
    Store(call);
    return BatchOf(call);
  };
  return {"altered-" + name, make, "", false};
}

// Returns a family of twelve steps. Three of four are changed, as with gradient clipping.
ArithmeticFamily Sometimes(const std::string& name, const Change& change) {
  const auto make = [change](Dice& dice) -> Attempt {
    const Recorded frame = ManyRanks(dice);
    v1::Batch batch;
    for (int step = 0; step < 12; ++step) {
      Recorded call = Summed(frame, dice);
      if (step % 4 != 3) change(call, dice);
      Store(call);
      v1::Batch one = BatchOf(call);
      for (v1::Evidence& e : *one.mutable_evidence()) e.set_step(step);
      if (step > 0) one.clear_sources();
      batch.MergeFrom(one);
    }
    return batch;
  };
  return {"sometimes-" + name, make, "", false};
}

}  // namespace

std::vector<ArithmeticFamily> AlteredCollectives() {
  std::vector<ArithmeticFamily> all;
  for (const auto& [name, change] : Changes()) {
    all.push_back(Once(name, change));
    all.push_back(Sometimes(name, change));
  }
  return all;
}

}  // namespace plumbline::rules::testing
