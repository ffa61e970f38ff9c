// Tests moe-batch-dependence and moe-tie-order under the attack of moe-future-leak: no innocent
// family is proved, almost none gives a hint, and guilty families are found. Batch dependence is
// determined by rerunning the router; tie breaking is known from its construction. Seeds: seeds.h.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/rules/attack/lab.h"
#include "tests/rules/attack/seeds.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::attack {
namespace {

using testing::Outcome;

constexpr const char* kBatch = "causality/moe-batch-dependence";
constexpr const char* kTies = "causality/moe-tie-order";

v1::Verdict Judge(const char* rule, v1::Batch batch) {
  return testing::Only(testing::VerdictsOf(rule, {std::move(batch)}), rule);
}

std::vector<Family> AllFamilies() {
  std::vector<Family> all = CleanFamilies();
  all.insert(all.end(), LeakingFamilies().begin(), LeakingFamilies().end());
  return all;
}

bool PoolsHoldSeveralSequences(const Rows& rows, const Call& call) {
  std::set<std::pair<int, int64_t>> members;
  std::set<int> pools;
  for (size_t t = 0; t < rows.sequence.size(); ++t) {
    const int pool = call.pool.empty() ? 0 : call.pool[t];
    pools.insert(pool);
    members.insert({pool, rows.sequence[t]});
  }
  return members.size() > pools.size();
}

// Hints on these families are known: stored numbers from the recorded text have the same effect as
// batch statistics.
const std::set<std::string>& KnownHints() {
  static const std::set<std::string> families = CalibratedFamilies();
  return families;
}

// Returns true if the family refuses by a stored rule or by load before its capacity is reached. No
// recorded fact explains the refusals, and no fact requires a finding.
bool RefusesBesides(const std::string& family) {
  static const std::set<std::string> by_load = LoadAwareFamilies();
  return by_load.contains(family) || family == "a cached prefix, then a queue" ||
         family == "patches dropped by a grid, then a queue";
}

// Returns true if the family depends on the batch through state besides the capacity. If the state
// had no effect in the recorded call, every token was routed by its own scores. The rule page lists
// this as a limitation.
bool DependsBesides(const std::string& family) {
  return family == "a controller of biases" || family == "a window increased and halved";
}

struct Totals {
  int64_t recordings = 0, proofs = 0, hints = 0, known = 0, guilty = 0, found = 0, unseen = 0;
};

void JudgeFamily(const Family& family, const Recorder& recorder, uint64_t seeds, Totals* all) {
  Counts counts;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const Lab lab(family.data, seed);
    const Rows rows = lab.Text();
    const Call call = family.route(lab, rows);
    const v1::Verdict verdict = Judge(kBatch, Record(lab, rows, call, recorder));
    ++all->recordings;
    ++counts[Outcome(verdict)];
    const bool refuses = call.capacity > 0 && (call.index.empty() || Refused(rows, call) > 0);
    const bool requested = Found(verdict) || verdict.kind() == v1::Verdict::KIND_PASS ||
                           (recorder.facts && refuses && PoolsHoldSeveralSequences(rows, call));
    const bool depends = requested && DependsOnBatch(lab, family.route, rows, call, 24);
    if (Found(verdict) && !depends) {
      all->proofs += Proved(verdict);
      (KnownHints().contains(family.name) ? all->known : all->hints) += 1;
      ++counts["innocent"];
      EXPECT_FALSE(Proved(verdict)) << family.name << " seed " << seed << "\n"
                                    << verdict.finding().explanation();
    }
    // If there is no recorded capacity and no refusal, a pass must state the assumption of no
    // capacity.
    const bool assumed =
        verdict.assumptions_size() > 0 && verdict.assumptions(0).find("no capacity") == 0;
    if (verdict.kind() == v1::Verdict::KIND_PASS && !assumed) {
      const bool unseen = depends && DependsBesides(family.name) && Refused(rows, call) == 0;
      all->unseen += unseen;
      EXPECT_TRUE(!depends || unseen)
          << family.name << " seed " << seed << ": " << verdict.reason();
    }
    if (!recorder.facts || !refuses || !depends || RefusesBesides(family.name)) continue;
    ++all->guilty;
    all->found += Found(verdict);
    counts["missed"] += !Found(verdict);
  }
  Print(family.name, counts);
}

Totals JudgeAll(const std::vector<Family>& families, const Recorder& recorder, uint64_t seeds) {
  Totals all;
  for (const Family& family : families) {
    if (Requested(family.name)) JudgeFamily(family, recorder, seeds, &all);
  }
  std::cout << families.size() << " families, " << all.recordings << " recordings, " << all.proofs
            << " proofs and " << all.hints << " hints of what does not depend on the batch ("
            << all.known << " known); " << all.guilty << " that refuse do, " << all.found
            << " found, " << all.unseen << " pass that depend on more than a capacity\n";
  EXPECT_EQ(all.proofs, 0);
  EXPECT_LE(static_cast<double>(all.unseen), 1 + 0.001 * static_cast<double>(all.recordings));
  EXPECT_LE(static_cast<double>(all.hints), 2 + 0.005 * static_cast<double>(all.recordings));
  return all;
}

TEST(BatchDependenceAttack, NoInnocentRouterIsProvedGuilty) {
  JudgeAll(AllFamilies(), {}, Seeds(2, 30));
}

TEST(BatchDependenceAttack, WhatDependsOnTheBatchIsFoundWhereTheFactsAreRecorded) {
  const Totals all = JudgeAll(AllFamilies(), {.facts = true}, Seeds(2, 30));
  EXPECT_GE(static_cast<double>(all.found), 0.9 * static_cast<double>(all.guilty));
}

TEST(BatchDependenceAttack, NoInnocentRouterIsProvedGuiltyByFieldsThatAreWrong) {
  JudgeAll(AllFamilies(), {.misdeclare = true}, Seeds(1, 20));
}

// ---- ties ----

// Drop by score with frequent ties, which are not resolved in time order.
const std::set<std::string>& TieBreakers() {
  static const std::set<std::string> families = {"drop by coarse score, the last of equals first",
                                                 "drop by coarse score, equals by a hash"};
  return families;
}

TEST(TieOrderAttack, OnlyWhoBreaksTiesOutOfOrderIsSuspected) {
  int64_t recordings = 0, hints = 0, guilty = 0, found = 0;
  for (const Recorder& recorder : {Recorder{}, Recorder{.facts = true}}) {
    for (const Family& family : AllFamilies()) {
      if (!Requested(family.name)) continue;
      const bool breaks = TieBreakers().contains(family.name);
      Counts counts;
      for (uint64_t seed = FirstSeed(); seed < FirstSeed() + Seeds(2, 30); ++seed) {
        const Lab lab(family.data, seed);
        const Rows rows = lab.Text();
        const Call call = family.route(lab, rows);
        const v1::Verdict verdict = Judge(kTies, Record(lab, rows, call, recorder));
        ++recordings;
        ++counts[Outcome(verdict)];
        EXPECT_FALSE(Proved(verdict)) << family.name << " seed " << seed;
        hints += Found(verdict) && !breaks;
        if (!breaks || !recorder.facts || Refused(rows, call) == 0) continue;
        ++guilty;
        found += Found(verdict);
      }
      Print(family.name, counts);
    }
  }
  std::cout << recordings << " recordings, " << hints << " hints; " << guilty
            << " that break ties out of order and refuse, " << found << " found\n";
  EXPECT_LE(static_cast<double>(hints), 0.005 * static_cast<double>(recordings));
  EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(guilty));
}

// Tests two recordings of one call that differ only in the resolution of ties.
TEST(TieOrderAttack, ARaceAmongEqualsIsProvedByTwoRecordings) {
  int64_t calls = 0, proved = 0;
  for (const Family& family : LeakingFamilies()) {
    if (!TieBreakers().contains(family.name)) continue;
    const Family* stable = nullptr;
    for (const Family& other : LeakingFamilies()) {
      if (std::string(other.name) == "drop by coarse score, equals in time order") stable = &other;
    }
    ASSERT_NE(stable, nullptr);
    for (uint64_t seed = FirstSeed(); seed < FirstSeed() + Seeds(4, 40); ++seed) {
      const Lab lab(family.data, seed);
      const Rows rows = lab.Text();
      const Call one = family.route(lab, rows), other = stable->route(lab, rows);
      v1::Batch batch = Record(lab, rows, one, {.facts = true, .whole = true});
      *batch.add_evidence() = Record(lab, rows, other, {.facts = true, .whole = true}).evidence(0);
      batch.mutable_evidence(1)->set_call(1);
      const bool differs = one.keep != other.keep;
      calls += differs;
      int64_t here = 0;
      for (const v1::Verdict& v : testing::VerdictsOf(kTies, {batch})) here += Proved(v);
      EXPECT_TRUE(differs || here == 0) << family.name << " seed " << seed;
      proved += differs && here > 0;
    }
  }
  std::cout << calls << " calls recorded twice, " << proved << " proved\n";
  EXPECT_GT(calls, 0);
  EXPECT_GE(static_cast<double>(proved), 0.95 * static_cast<double>(calls));
}

}  // namespace
}  // namespace plumbline::rules::attack
