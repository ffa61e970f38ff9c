// Attack on the advice of precision/collective-sum: means that are multiplied by a rounded 1/N
// after a sum in f32. A sum in f32 is no remedy for them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/rules/attack/sums_lab.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::testing {
namespace {

Recorded Averaged(Dice& dice) {
  Recorded call = Addends(dice, {7, 14, 15, 24, 28, 30, 48, 60}, {DType::kBF16, DType::kF16});
  call.average = true;
  call.samples = 512;
  const Sum zero = [](const SumValues&, const Recorded&, Dice&) { return 0.0; };
  call.columns.clear();
  call.output.clear();
  return Filled(call, zero, dice);
}

TEST(RoundedReciprocal, AdviceIsToDivide) {
  const int each = std::getenv("PLUMB_LONG") != nullptr ? 500 : 6;
  int found = 0;
  for (int n = 0; n < each; ++n) {
    Dice dice(static_cast<uint64_t>(n));
    Recorded call = Averaged(dice);
    const bool stored = n % 2 == 0;
    const double factor = Rounded(1.0 / call.ranks, call.input);
    for (size_t i = 0; i < call.columns.size(); ++i) {
      const double sum = Rounded(Total(call.columns[i]), stored ? call.input : DType::kF32);
      call.output[i] = Rounded(sum * factor, call.input);
    }
    for (const v1::Verdict& v : VerdictsOn({BatchOf(call)}, {.rules = {"precision/*"}})) {
      if (!v.has_finding() || v.finding().level() < v1::LEVEL_WARNING) continue;
      EXPECT_EQ(v.finding().cause().id(), "rounded-reciprocal") << v.finding().explanation();
      EXPECT_EQ(v.finding().fix().find("Sum in fp32"), std::string::npos) << v.finding().fix();
      found += v.rule() == "precision/collective-sum" ? 1 : 0;
    }
  }
  std::cout << "found " << found << " of " << each << "\n";
  EXPECT_GE(2 * found, each);  // the rest are no finding: cancelling sums hide the factor
}

}  // namespace
}  // namespace plumbline::rules::testing
