// The attack on what sums, products and updates are judged by: clean recordings of arithmetics that
// the rules know and of such as they do not, of which none is an error; and broken ones, of which
// each is found. PLUMB_LONG=1 makes 2,400 recordings, else a few of every family.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/rules/attack/arithmetic_families.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::testing {
namespace {

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

const v1::Finding* Worst(const Verdicts& verdicts, const std::string& rule, std::string* name) {
  const v1::Finding* worst = nullptr;
  for (const v1::Verdict& v : verdicts) {
    if (!v.has_finding() || !v.rule().starts_with(rule.empty() ? "precision/" : rule)) continue;
    if (worst != nullptr && v.finding().level() <= worst->level()) continue;
    worst = &v.finding();
    *name = v.rule();
  }
  return worst;
}

struct Count {
  int recordings = 0, families = 0, errors = 0, warnings = 0;
};

void Accuse(const std::vector<ArithmeticFamily>& families, int each, Count* count) {
  const EngineConfig config{.rules = {"precision/*"}};
  for (const ArithmeticFamily& family : families) {
    ++count->families;
    for (int n = 0; n < each; ++n) {
      Dice dice(1000 * static_cast<uint64_t>(n) + std::hash<std::string>()(family.name) % 997);
      const Verdicts verdicts = VerdictsOn({family.make(dice)}, config);
      ++count->recordings;
      std::string rule;
      const v1::Finding* worst = Worst(verdicts, "", &rule);
      if (worst == nullptr) continue;
      count->warnings += worst->level() == v1::LEVEL_WARNING;
      if (worst->level() != v1::LEVEL_ERROR) continue;
      ++count->errors;
      ADD_FAILURE() << family.name << " " << n << ": " << rule << ": " << worst->explanation();
    }
  }
}

TEST(ArithmeticAttack, CleanOnesAreNoErrors) {
  const int each = Long() ? 30 : 2;
  Count count;
  Accuse(CleanCollectives(), each, &count);
  Accuse(CleanProducts(), each, &count);
  Accuse(CleanUpdates(), each, &count);
  EXPECT_GE(count.families, 60);
  std::cout << count.recordings << " recordings of " << count.families << " arithmetics, "
            << count.errors << " errors, " << count.warnings << " warnings\n";
}

TEST(ArithmeticAttack, BrokenOnesAreFound) {
  const int each = Long() ? 20 : 3;
  const EngineConfig config{.rules = {"precision/*"}};
  std::map<std::string, int> missed;
  for (const ArithmeticFamily& family : BrokenArithmetics()) {
    for (int n = 0; n < each; ++n) {
      Dice dice(77 + 1000 * static_cast<uint64_t>(n));
      const Verdicts verdicts = VerdictsOn({family.make(dice)}, config);
      std::string rule;
      const v1::Finding* worst = Worst(verdicts, family.rule, &rule);
      const v1::Level wanted = family.warning ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
      const bool miss = worst == nullptr || worst->level() < wanted;
      missed[family.name] += miss;
      if (!miss) continue;
      for (const v1::Verdict& v : verdicts) {
        if (v.rule() == family.rule) std::cout << family.name << ": " << v.reason() << "\n";
      }
    }
  }
  for (const auto& [name, n] : missed) EXPECT_EQ(n, 0) << name << " of " << each;
}

}  // namespace
}  // namespace plumbline::rules::testing
