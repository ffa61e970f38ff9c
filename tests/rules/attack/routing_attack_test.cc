// Tests that clean routers are never proved and rarely give a hint, and that leaking routers are
// found if capacity and pools are recorded. Seeds: seeds.h.
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>

#include "tests/rules/attack/lab.h"
#include "tests/rules/attack/real.h"
#include "tests/rules/attack/seeds.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::attack {
namespace {

using testing::Outcome;

constexpr const char* kRule = "causality/moe-future-leak";

v1::Verdict Judge(v1::Batch batch) {
  return testing::Only(testing::VerdictsOf(kRule, {std::move(batch)}), kRule);
}

// Hints on these families are known, because the recording does not distinguish them from leaks.
// Proofs are not allowed.
const std::set<std::string>& KnownHints() {
  static const std::set<std::string> families = {
      "selection sampling of a stored demand", "selection sampling of an earlier demand",
      // Counts are equal because of the data structure. If that number is misdeclared as a
      // capacity, nothing in the recording contradicts it.
      "ReLU routing of even words", "thresholds of even words", "thresholds of tasks of even words",
      "choices of even words, none below a threshold",
      // One sequence of a list in which every id occurs once: a stored rule equals its leaking
      // policy.
      "bars stored for a list of ids", "bars of columns stored for a list of ids",
      "ids served as before", "places of choice ranks stored for a list of ids"};
  return families;
}

// Returns true if hints on the family are known, including all families with numbers stored from
// the recorded text.
bool Known(const Family& family) {
  static const std::set<std::string> calibrated = CalibratedFamilies();
  return KnownHints().contains(family.name) || calibrated.contains(family.name);
}

struct Judged {
  int64_t recordings = 0, hints = 0, known = 0;
  int64_t strong = 0;  // hints and known ones of at least 100 bits
};

// Returns true for a hint that only its recording keeps from being a proof.
bool Strong(const v1::Verdict& v) {
  const auto& witness = v.finding().witness().fields();
  return Found(v) && witness.contains("bits") && witness.at("bits").number_value() >= 100;
}

Judged JudgeClean(const Recorder& recorder, uint64_t seeds) {
  const uint64_t first = FirstSeed();
  Judged all;
  for (const Family& family : CleanFamilies()) {
    if (!Requested(family.name)) continue;
    Counts counts;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const Lab lab(family.data, seed);
      const Rows rows = lab.Text();
      const Call call = family.route(lab, rows);
      const bool leaks = seed == first && Leaks(lab, family.route, rows, call, 4);
      EXPECT_FALSE(leaks) << family.name;
      const v1::Verdict verdict = Judge(Record(lab, rows, call, recorder));
      ++counts[Outcome(verdict)];
      ++all.recordings;
      (Known(family) ? all.known : all.hints) += Found(verdict);
      all.strong += Strong(verdict);
      if (Strong(verdict)) ++counts["of 100 bits"];
      EXPECT_FALSE(Proved(verdict)) << family.name << " seed " << seed << "\n"
                                    << verdict.finding().explanation();
    }
    Print(family.name, counts);
  }
  std::cout << CleanFamilies().size() << " families, " << all.recordings << " recordings, "
            << all.hints << " hints, " << all.known << " known ones, " << all.strong
            << " of 100 bits\n";
  return all;
}

TEST(RoutingAttack, CleanFamiliesAreMany) { EXPECT_GE(CleanFamilies().size(), 200u); }

TEST(RoutingAttack, NoCleanRouterIsProvedGuilty) {
  const Judged all = JudgeClean({}, Seeds(6, 100));
  EXPECT_LE(static_cast<double>(all.hints), 0.005 * static_cast<double>(all.recordings));
}

TEST(RoutingAttack, NoCleanRouterIsProvedGuiltyWhoseFactsAreRecorded) {
  const Judged all = JudgeClean({.facts = true}, Seeds(3, 60));
  EXPECT_LE(static_cast<double>(all.hints), 0.005 * static_cast<double>(all.recordings));
}

// Tests incorrect fields: a capacity that does not exist or differs, or the name of another policy.
// If experts refuse at random before they are full, such a name requires a hint, so twice as many
// are allowed.
TEST(RoutingAttack, NoCleanRouterIsProvedGuiltyByFieldsThatAreWrong) {
  const Judged all = JudgeClean({.misdeclare = true}, Seeds(2, 30));
  EXPECT_LE(static_cast<double>(all.hints), 1 + 0.01 * static_cast<double>(all.recordings));
}

// Checks that a router that uses later rows passes only if nothing was refused and no capacity was
// recorded. The verdict must then state its assumption.
void NoLeakingRouterPasses(const Recorder& recorder, uint64_t seeds) {
  int64_t recordings = 0, passed = 0, assumed = 0;
  const uint64_t first = FirstSeed();
  for (const Family& family : LeakingFamilies()) {
    if (!Requested(family.name)) continue;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const Lab lab(family.data, seed);
      const Rows rows = lab.Text();
      const Call call = family.route(lab, rows);
      const v1::Verdict verdict = Judge(Record(lab, rows, call, recorder));
      ++recordings;
      if (verdict.kind() != v1::Verdict::KIND_PASS || !Leaks(lab, family.route, rows, call, 12))
        continue;
      ++passed;
      const bool states =
          verdict.assumptions_size() > 0 && verdict.assumptions(0).find("no capacity") == 0;
      assumed += states;
      EXPECT_TRUE(states) << family.name << " seed " << seed << " passes: " << verdict.reason();
    }
  }
  std::cout << recordings << " recordings of leaking routers, " << passed << " that leaked pass, "
            << assumed << " of them on the assumption that there is no capacity\n";
}

TEST(RoutingAttack, NoLeakingRouterPassesHoweverItIsRecorded) {
  NoLeakingRouterPasses({}, Seeds(3, 40));
}

// Returns the families without refusals and equal counts, or with refusals by unrecorded data.
const std::set<std::string>& BeyondReach() {
  static const std::set<std::string> families = {
      "overflow placed last",
      // Keys with few values: if every expert is full, a stored table has the same effect.
      "drop by coarse score, the last of equals first", "drop by coarse score, equals by a hash",
      "drop by coarse score, equals in time order"};
  return families;
}

TEST(RoutingAttack, LeakingRoutersAreFoundWhereTheFactsAreRecorded) {
  const uint64_t seeds = Seeds(4, 60), first = FirstSeed();
  int64_t refusing = 0, found = 0, passed = 0;
  EXPECT_GE(LeakingFamilies().size(), 40u);
  for (const Family& family : LeakingFamilies()) {
    if (!Requested(family.name)) continue;
    Counts counts;
    int64_t here = 0, found_here = 0;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const Lab lab(family.data, seed);
      const Rows rows = lab.Text();
      const Call call = family.route(lab, rows);
      const v1::Verdict verdict = Judge(Record(lab, rows, call, {.facts = true}));
      ++counts[Outcome(verdict)];
      const bool refuses = call.capacity > 0 && (call.index.empty() || Refused(rows, call) > 0);
      if (refuses && !BeyondReach().contains(family.name) &&
          Leaks(lab, family.route, rows, call, 12)) {
        ++here;
        found_here += Found(verdict);
        if (!Found(verdict))
          std::cout << "    missed seed " << seed << ": " << verdict.reason() << "\n";
      }
      if (verdict.kind() == v1::Verdict::KIND_PASS && Leaks(lab, family.route, rows, call, 12)) {
        ++passed;
        ADD_FAILURE() << family.name << " seed " << seed << " passes: " << verdict.reason();
      }
    }
    Print(family.name, counts);
    refusing += here;
    found += found_here;
  }
  std::cout << refusing << " calls refuse, " << found << " found\n";
  EXPECT_GE(static_cast<double>(found), 0.99 * static_cast<double>(refusing));
}

// Prints the share of decided recordings, Mixtral to ReMoE, and the reasons for the others.
TEST(RoutingAttack, RoutersThatPeopleRunAreDecided) {
  const uint64_t seeds = Seeds(2, 20), first = FirstSeed();
  std::cout << "router | recordings | decided | outcomes\n";
  for (const RealRouter& router : RealRouters()) {
    if (!Requested(router.name)) continue;
    Counts counts;
    int64_t decided = 0;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const Lab lab(Data::kPlain, seed);
      const Made made = router.make(lab);
      const v1::Verdict verdict =
          Judge(Record(lab, made.rows, made.call, {.facts = true, .whole = true}));
      ++counts[Outcome(verdict)];
      decided += verdict.kind() != v1::Verdict::KIND_INCONCLUSIVE;
      EXPECT_NE(verdict.kind(), router.leaks ? v1::Verdict::KIND_PASS : v1::Verdict::KIND_FINDING)
          << router.name << " seed " << seed;
      if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE)
        std::cout << "  " << router.name << " seed " << seed << ": " << verdict.reason() << "\n";
    }
    std::cout << router.name << " | " << seeds << " | "
              << 100.0 * static_cast<double>(decided) / static_cast<double>(seeds) << " %";
    Print("", counts);
    EXPECT_GE(static_cast<double>(decided), 0.95 * static_cast<double>(seeds)) << router.name;
  }
}

}  // namespace
}  // namespace plumbline::rules::attack
