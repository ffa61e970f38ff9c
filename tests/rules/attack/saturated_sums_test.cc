// Attack on precision/collective-overflow: sums that saturate at the largest fp16, and large
// sums that do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/rules/attack/sums_lab.h"

namespace plumbline::rules::testing {
namespace {

// Returns addends whose largest sum is `reach` times the largest finite value.
Recorded LargeAddends(Dice& dice, double reach, std::initializer_list<DType> types) {
  Recorded call = Addends(dice, {2, 3, 4, 7, 8, 16, 24, 32, 64}, types);
  call.average = false;
  constexpr double limit = 65504;
  double largest = 0;
  for (const SumValues& x : call.columns) largest = std::max(largest, std::fabs(Total(x)));
  for (SumValues& x : call.columns) {
    for (double& v : x)
      v = std::clamp(Rounded(v * (reach * (limit / largest)), call.input), -limit, limit);
  }
  return call;
}

double Clamped(double x) { return Rounded(std::clamp(x, -65504.0, 65504.0), DType::kF16); }

enum class Where { kStore, kHops, kDivided, kScaled };

Attempt Saturated(Dice& dice, Where where) {
  // Addends after a saturated hop may bring a sum back below the limit, so more must saturate.
  const double reach = dice.One({1.2, 1.5, 2.0, 4.0, 16.0});
  Recorded call = LargeAddends(dice, where == Where::kHops ? 1 + reach : reach, {DType::kF16});
  call.wire_stated = dice.Below(2) == 0;
  call.average = where == Where::kDivided;
  if (where == Where::kScaled) call.postscale = dice.One({0.5, 0.125, 1.0 / 24, 1.0 / 1024});
  const std::vector<int> rows = AnyOrder(call.ranks, dice);
  for (size_t i = 0; i < call.columns.size(); ++i) {
    const SumValues& x = call.columns[i];
    double sum = x[static_cast<size_t>(rows[0])];
    for (size_t k = 1; where == Where::kHops && k < rows.size(); ++k)
      sum = Clamped(sum + x[static_cast<size_t>(rows[k])]);
    if (where != Where::kHops) sum = Clamped(Total(x));
    call.output[i] = Rounded((call.average ? sum / call.ranks : sum) * call.postscale, call.input);
  }
  return BatchOf(call);
}

// Large sums that were scaled or cut after the sum, or that fit.
ArithmeticFamily Large(const std::string& name, double reach, double postscale,
                       const std::function<double(double, const Recorded&, Dice&)>& after) {
  return {name,
          [=](Dice& dice) -> Attempt {
            Recorded call = LargeAddends(dice, reach, {DType::kF16});
            call.postscale = postscale;
            for (size_t i = 0; i < call.columns.size(); ++i)
              call.output[i] = Rounded(after(Total(call.columns[i]), call, dice), DType::kF16);
            return BatchOf(call);
          },
          ""};
}

std::vector<ArithmeticFamily> LargeSums() {
  const auto scale = [](double factor) {
    return [=](double s, const Recorded&, Dice&) { return s * factor; };
  };
  const auto cut = [](double limit) {
    return [=](double s, const Recorded&, Dice&) { return std::clamp(s, -limit, limit); };
  };
  return {
      Large("just-below", 0.99, 1, scale(1)),
      Large("at-the-limit", 1.0002, 1, scale(1)),
      Large("scaled-after", 4, 1, scale(0.125)),
      Large("scaled-onto-the-limit", 4, 1, scale(0.25)),
      Large("scaled-by-any", 4, 1,
            [](double s, const Recorded&, Dice& d) { return s * (0.2 + 0.05 * d.Uniform()); }),
      Large("scale-declared", 6, 0.0625, scale(0.0625)),
      Large("cut-after", 3, 1, cut(1000)),
      Large("cut-below-the-limit", 3, 1, cut(60000)),
      Large("stochastic-at-the-limit", 1.002, 1,
            [](double s, const Recorded&, Dice& d) { return StochasticRound(s, DType::kF16, d); }),
      // Replaced by zero, as a check of finite values may do.
      Large("infinities-dropped", 2, 1,
            [](double s, const Recorded&, Dice&) { return std::fabs(s) > 65504 ? 0 : s; }),
      // The divisor of an average or a clip of the norm differs by element (by parameter group).
      Large("scaled-by-group", 8, 1,
            [](double s, const Recorded&, Dice& d) {
              return s * d.One({0.11, 0.05, 0.01});
            }),
  };
}

std::vector<ArithmeticFamily> SaturatedFamilies() {
  constexpr char kRule[] = "precision/collective-overflow";
  return {{"saturated-store", [](Dice& d) { return Saturated(d, Where::kStore); }, kRule},
          {"saturated-hops", [](Dice& d) { return Saturated(d, Where::kHops); }, kRule},
          {"saturated-then-divided", [](Dice& d) { return Saturated(d, Where::kDivided); }, kRule},
          {"saturated-then-scaled", [](Dice& d) { return Saturated(d, Where::kScaled); }, kRule}};
}

// Results that fit or overflow to Inf, in fp16 or f32.
std::vector<ArithmeticFamily> OrdinaryLargeReductions() {
  return OrdinaryReductions([](Dice& dice) {
    Recorded call = LargeAddends(dice, dice.One({0.5, 0.999, 1.001, 1.5, 4.0, 16.0}),
                                 {DType::kF16, DType::kF32});
    call.average = dice.Below(2) == 0;
    return call;
  });
}

// Inf is the correct result of sums that do not fit.
const std::set<std::string> kTrueOverflows = {"precision/non-finite", "partial-sum",
                                              "divided-after-the-sum", "scaled-after-the-sum",
                                              "not-an-overflow"};

TEST(SaturatedSums, AreFound) { ExpectFound(SaturatedFamilies(), "saturated", 4); }
TEST(SaturatedSums, LargeSumsAreNot) { ExpectSilent(LargeSums(), kTrueOverflows, 2); }
TEST(SaturatedSums, NoInnocentIsDetected) {
  const Detector saturated = [](const analysis::JoinedReduction& joined,
                                const analysis::ReductionCase& c) {
    return analysis::FindSaturated(c, joined.call_of(0).postscale()).found();
  };
  ExpectUndetected(LargeSums(), saturated, 20);
  ExpectUndetected(OrdinaryLargeReductions(), saturated, 20);
}
TEST(SaturatedSums, OrdinaryReductionsAreNot) {
  ExpectSilent(OrdinaryLargeReductions(), kTrueOverflows, 2);
}

}  // namespace
}  // namespace plumbline::rules::testing
