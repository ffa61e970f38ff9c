// Counts the findings on recordings of the attack on sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tests/rules/attack/sums_lab.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::testing {
namespace {

// PLUMB_EACH overrides it.
int Each(int quick) {
  if (const char* each = std::getenv("PLUMB_EACH")) return std::atoi(each);
  return std::getenv("PLUMB_LONG") != nullptr ? 500 : quick;
}

bool Requested(const std::string& family) {
  const char* one = std::getenv("PLUMB_FAMILY");
  return one == nullptr || family == one;
}

v1::Batch BatchFrom(const ArithmeticFamily& family, int n) {
  const char* seed = std::getenv("PLUMB_SEED");
  Dice dice(9000 + 1000 * static_cast<uint64_t>(n) + std::hash<std::string>()(family.name) % 997 +
            1000003 * (seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10)));
  return family.make(dice).batch;
}

using RuleNames = std::vector<std::string>;
const RuleNames kAllRules = {"precision/*"};

void Print(const std::string& family, int n, const Verdicts& verdicts) {
  for (const v1::Verdict& v : verdicts) {
    std::cout << "  " << family << " " << n << ": " << v.rule() << ": "
              << (v.has_finding() ? v.finding().title() + ": " + v.finding().explanation()
                                  : v.reason())
              << "\n";
  }
}

// Returns the number of recordings whose verdicts fulfil `test`. Prints three that differ from
// `wanted`.
template <typename Test>
int CountOf(const RuleNames& rules, const ArithmeticFamily& family, int each, bool wanted,
            Test test) {
  int count = 0, printed = 0;
  for (int n = 0; n < each; ++n) {
    const Verdicts verdicts = VerdictsOn({BatchFrom(family, n)}, {.rules = rules});
    const bool is = std::any_of(verdicts.begin(), verdicts.end(), test);
    count += is;
    if (is != wanted && ++printed <= 3) Print(family.name, n, verdicts);
  }
  return count;
}

}  // namespace

void ExpectFound(const std::vector<ArithmeticFamily>& families, const std::string& cause,
                 int quick) {
  const int each = Each(quick);
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    const v1::Level wanted = family.warning ? v1::LEVEL_WARNING : v1::LEVEL_ERROR;
    const int found = CountOf({family.rule}, family, each, true, [&](const v1::Verdict& v) {
      return v.rule() == family.rule && v.has_finding() && v.finding().level() >= wanted &&
             (cause.empty() || v.finding().cause().id() == cause);
    });
    std::cout << family.name << ": found " << found << " of " << each << "\n";
    EXPECT_GE(100 * found, 95 * each) << family.name;
  }
}

void ExpectSilent(const std::vector<ArithmeticFamily>& families, const std::set<std::string>& but,
                  int quick) {
  const int each = std::min(Each(quick), 20);
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    const int accused = CountOf(kAllRules, family, each, false, [&](const v1::Verdict& v) {
      return v.has_finding() && v.finding().level() >= v1::LEVEL_WARNING &&
             !but.contains(v.finding().cause().id()) && !but.contains(v.rule());
    });
    std::cout << family.name << ": accused " << accused << " of " << each << "\n";
    EXPECT_EQ(accused, 0) << family.name;
  }
}

void ExpectSilentOf(const RuleNames& rules, const std::vector<ArithmeticFamily>& families,
                    int quick) {
  const int each = Each(quick);
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    const int accused = CountOf(rules, family, each, false, [](const v1::Verdict& v) {
      return v.has_finding() && v.finding().level() >= v1::LEVEL_WARNING &&
             !v.rule().starts_with("meta/");
    });
    std::cout << family.name << ": accused " << accused << " of " << each << "\n";
    EXPECT_EQ(accused, 0) << family.name;
  }
}

void ExpectWithoutCause(const std::vector<ArithmeticFamily>& families,
                        const std::set<std::string>& causes, int quick) {
  const int each = Each(quick);
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    const int accused =
        CountOf({"precision/collective-sum"}, family, each, false, [&](const auto& v) {
          return v.has_finding() && causes.contains(v.finding().cause().id());
        });
    std::cout << family.name << ": accused " << accused << " of " << each << "\n";
    EXPECT_EQ(accused, 0) << family.name;
  }
}

void ExpectUndetected(const std::vector<ArithmeticFamily>& families, const Detector& detector,
                      int quick) {
  const int each = Each(quick);
  for (const ArithmeticFamily& family : families) {
    if (!Requested(family.name)) continue;
    int detected = 0;
    for (int n = 0; n < each; ++n) {
      const v1::Batch batch = BatchFrom(family, n);
      analysis::SiteStep step;
      for (const v1::Evidence& e : batch.evidence())
        step.items.push_back({&batch.sources(static_cast<int>(e.source())), &e});
      step.world_size = static_cast<uint32_t>(batch.sources_size());
      for (const analysis::JoinedReduction& joined : *analysis::JoinReductions(step)) {
        const auto c = analysis::DecodeReduction(joined);
        const bool accused = c.ok() && detector(joined, *c);
        if (accused) std::cout << "  " << family.name << " " << n << "\n";
        detected += accused;
      }
    }
    std::cout << family.name << ": detected " << detected << " of " << each << "\n";
    EXPECT_EQ(detected, 0) << family.name;
  }
}

}  // namespace plumbline::rules::testing
