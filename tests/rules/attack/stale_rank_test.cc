// Attack on precision/collective-sum: one rank that adds its values of the step before, and inputs
// that are cut to 16 bits before the sum; with what resembles them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/rules/attack/sums_lab.h"

namespace plumbline::rules::testing {
namespace {

constexpr auto kAnyDType = {DType::kF32, DType::kBF16, DType::kF16};
constexpr auto kWorlds = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// ---- stale ranks ----

// What rank r adds at one element in the last step. `before` are the values of the earlier steps,
// oldest first.
using Part = std::function<double(double now, const SumValues& before, int rank, int odd)>;

Attempt Steps(Dice& dice, const Part& part) {
  const int steps = 3, odd_step = 2;
  const bool wide = dice.Below(2) == 0;
  const double drift = dice.One({0.05, 0.3, 1.0});  // how much the values change from step to step
  Recorded call = Addends(dice, kWorlds, kAnyDType);
  const int odd = dice.Below(call.ranks);
  const std::vector<int> rows = OrderFrom(call.ranks, 0);
  if (dice.Below(2) == 0) call.columns[0][0] = NAN;
  std::vector<std::vector<SumValues>> history(call.columns.size());  // [element][step][rank]
  v1::Batch batch;
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < call.columns.size(); ++i) {
      if (step > 0)
        for (double& x : call.columns[i])
          x = Rounded(x + drift * (call.kind == 0 ? 1 : x) * dice.Normal(), call.input);
      history[i].push_back(call.columns[i]);
      SumValues added;
      for (int r = 0; r < call.ranks; ++r) {
        SumValues before;
        for (int s = 0; s < step; ++s)
          before.push_back(history[i][static_cast<size_t>(s)][static_cast<size_t>(r)]);
        const double now = call.columns[i][static_cast<size_t>(r)];
        added.push_back(step == odd_step ? part(now, before, r, odd) : now);
      }
      const double sum =
          wide ? Rounded(Total(added), DType::kF32) : ChainOf(added, rows, call.input);
      call.output[i] = Stored(sum, call);
    }
    v1::Batch one = BatchOf(call);
    for (v1::Evidence& e : *one.mutable_evidence()) e.set_step(step);
    if (step > 0) one.clear_sources();
    batch.MergeFrom(one);
  }
  return batch;
}

ArithmeticFamily Family(const char* name, const Part& part) {
  return {name, [part](Dice& d) { return Steps(d, part); }, "precision/collective-sum"};
}

std::vector<ArithmeticFamily> NotStale() {
  return {
      Family("all-in-time", [](double now, const SumValues&, int, int) { return now; }),
      Family("all-delayed", [](double, const SumValues& before, int, int) { return before[1]; }),
      Family("two-steps-old", [](double now, const SumValues& before, int r,
                                 int odd) { return r == odd ? before[0] : now; }),
      Family("momentum-of-one", [](double now, const SumValues& before, int r,
                                   int odd) { return r == odd ? now + 0.9 * before[1] : now; }),
      Family("accumulated", [](double now, const SumValues& before, int,
                               int) { return now + before[1] + before[0]; }),
      Family("left-out",
             [](double now, const SumValues&, int r, int odd) { return r == odd ? 0 : now; }),
      // Two stale ranks at least, also of three.
      Family("half-in-time", [](double now, const SumValues& before, int r,
                                int) { return r == 0 || r % 2 == 1 ? before[1] : now; }),
  };
}

TEST(StaleRank, IsFound) {
  ExpectFound({Family("stale-rank", [](double now, const SumValues& before, int r,
                                       int odd) { return r == odd ? before[1] : now; })},
              "stale-rank", 6);
}
TEST(StaleRank, OthersAreNot) {
  ExpectWithoutCause(NotStale(), {"stale-rank", "flipped-sign", "inputs-cut"}, 2);
}

// ---- inputs that are cut ----

Attempt Converted(Dice& dice, RoundingMode mode, bool wide, double factor) {
  Recorded call = Addends(dice, kWorlds, {DType::kF32});
  call.wire_stated = dice.Below(2) == 0;
  const DType t = dice.One({DType::kBF16, DType::kF16});
  const std::vector<int> rows = OrderFrom(call.ranks, 0);
  for (size_t i = 0; i < call.columns.size(); ++i) {
    SumValues x;
    for (const double v : call.columns[i]) x.push_back(factor * Rounded(v, t, mode));
    call.output[i] =
        Stored(wide ? Rounded(Total(x), DType::kF32) : ChainOf(x, rows, DType::kF32), call);
  }
  return BatchOf(call);
}

// Every value is the same significand, so that a cut and a factor give the same results.
Attempt OneSignificand(Dice& dice) {
  Recorded call = Addends(dice, kWorlds, {DType::kF32});
  const double significand = 1 + dice.Uniform();
  for (size_t i = 0; i < call.columns.size(); ++i) {
    for (double& x : call.columns[i])
      x = Rounded(std::exp2(dice.Below(8)) * significand, DType::kF32);
    SumValues x;
    for (const double v : call.columns[i])
      x.push_back(Rounded(v, DType::kBF16, RoundingMode::kTowardZero));
    call.output[i] = Stored(Rounded(Total(x), DType::kF32), call);
  }
  return BatchOf(call);
}

TEST(CutInputs, AreFound) {
  const auto cut = [](bool wide) {
    return [wide](Dice& d) { return Converted(d, RoundingMode::kTowardZero, wide, 1); };
  };
  ExpectFound({{"cut-wide", cut(true), "precision/collective-sum", true},
               {"cut-ring", cut(false), "precision/collective-sum", true}},
              "inputs-cut", 4);
}
TEST(CutInputs, OthersAreNot) {
  const auto nearest = [](double factor) {
    return [factor](Dice& d) { return Converted(d, RoundingMode::kNearestEven, true, factor); };
  };
  ExpectWithoutCause({{"cast-to-nearest", nearest(1), ""},
                      {"cast-and-scaled", nearest(0.9972), ""},
                      {"one-significand", OneSignificand, ""}},
                     {"inputs-cut", "stale-rank", "flipped-sign"}, 4);
  ExpectWithoutCause(OrdinaryReductions([](Dice& d) { return Addends(d, kWorlds, kAnyDType); }),
                     {"inputs-cut", "stale-rank"}, 2);
}

}  // namespace
}  // namespace plumbline::rules::testing
