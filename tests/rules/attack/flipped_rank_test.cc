// Attack on precision/collective-sum: one rank whose values are subtracted, and sums that miss or
// weigh parts of ranks in other ways.
#include <gtest/gtest.h>

#include "tests/rules/attack/sums_lab.h"

namespace plumbline::rules::testing {
namespace {

constexpr auto kTypes = {DType::kBF16, DType::kF16, DType::kF32};
constexpr auto kWorlds = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What rank `odd` adds at one element, from its values of this step and of the step before.
using Part = std::function<double(double now, double before)>;

Attempt OddRank(Dice& dice, const Part& part, bool wide) {
  Recorded call = Addends(dice, kWorlds, kTypes);
  const auto odd = static_cast<size_t>(dice.Below(call.ranks));
  const std::vector<int> rows = OrderFrom(call.ranks, 0);
  for (size_t i = 0; i < call.columns.size(); ++i) {
    SumValues x = call.columns[i];
    x[odd] = part(x[odd], Rounded(dice.Normal(), call.input));
    const double sum = wide ? Rounded(Total(x), DType::kF32) : ChainOf(x, rows, call.input);
    call.output[i] = Stored(sum, call);
  }
  return BatchOf(call);
}

std::vector<ArithmeticFamily> InBothWays(const std::string& name, const Part& part) {
  return {{name + "-ring", [part](Dice& d) { return OddRank(d, part, false); },
           "precision/collective-sum"},
          {name + "-wide", [part](Dice& d) { return OddRank(d, part, true); },
           "precision/collective-sum"}};
}

std::vector<ArithmeticFamily> EvenRanks() {
  std::vector<ArithmeticFamily> all;
  const auto add = [&](const char* name, const Part& part) {
    for (ArithmeticFamily& family : InBothWays(name, part)) all.push_back(std::move(family));
  };
  add("no-odd-rank", [](double x, double) { return x; });
  add("left-out", [](double, double) { return 0.0; });
  add("half-weight", [](double x, double) { return x / 2; });
  add("momentum", [](double x, double other) { return 0.9 * other + x; });
  add("stale", [](double, double other) { return other; });
  return all;
}

const Detector kFlipped = [](const analysis::JoinedReduction&, const analysis::ReductionCase& c) {
  return analysis::FindFlippedRank(c, analysis::SumColumnsOf(c)).found();
};

TEST(FlippedRank, IsFound) {
  ExpectFound(InBothWays("sign-flipped", [](double x, double) { return -x; }), "flipped-sign", 4);
}
TEST(FlippedRank, OtherPartsAreNot) {
  ExpectUndetected(EvenRanks(), kFlipped, 4);
  ExpectUndetected(OrdinaryReductions([](Dice& d) { return Addends(d, kWorlds, kTypes); }),
                   kFlipped, 4);
}

}  // namespace
}  // namespace plumbline::rules::testing
