// The confusion matrix of causality/moe-future-leak over all kinds of routers and recordings. Clean
// kinds must never be proved; leaking kinds must be found if the recording has the evidence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "analysis/routing/call/capacity.h"
#include "tests/rules/support/routing_twins.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::CausalTwin;
using testing::Kind;
using testing::Only;
using testing::Outcome;
using testing::RoutingSpec;
using testing::SyntheticRouting;
using testing::VerdictsOf;

constexpr const char* kRule = "causality/moe-future-leak";

v1::Verdict Judge(const SyntheticRouting& routing) {
  return Only(VerdictsOf(kRule, {routing.Batch()}), kRule);
}

bool Found(const v1::Verdict& verdict) { return verdict.kind() == v1::Verdict::KIND_FINDING; }
bool Proved(const v1::Verdict& verdict) {
  return Found(verdict) && verdict.finding().strength() == v1::STRENGTH_PROVED;
}

// Returns the number of cases per kind: 75, or 150 if PLUMB_LONG=1. PLUMB_MATRIX_TIMES multiplies
// it.
uint64_t Seeds() {
  const char* times = std::getenv("PLUMB_MATRIX_TIMES");
  return (std::getenv("PLUMB_LONG") != nullptr ? 150 : 75) *
         (times != nullptr ? std::strtoull(times, nullptr, 10) : 1);
}
uint64_t FirstSeed() {
  const char* first = std::getenv("PLUMB_MATRIX_FIRST");
  return first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
}

void Print(const std::string& name, const std::map<std::string, int>& outcomes) {
  std::cout << "  " << name << ":";
  for (const auto& [outcome, count] : outcomes) std::cout << " " << outcome << "=" << count;
  std::cout << "\n";
}

struct Accused {
  int64_t cases = 0;
  int64_t hints = 0;
};

// Returns the counts of accusations. No clean router may be proved.
Accused JudgeClean(const std::vector<Kind>& kinds) {
  const uint64_t seeds = Seeds(), first = FirstSeed();
  int64_t cases = 0, hints = 0;
  std::cout << "seeds " << first << ".." << first + seeds - 1 << "\n";
  for (const Kind& kind : kinds) {
    std::map<std::string, int> outcomes;
    for (uint64_t seed = first; seed < first + seeds; ++seed, ++cases) {
      const v1::Verdict verdict = Judge(SyntheticRouting(kind.Make(seed)));
      ++outcomes[Outcome(verdict)];
      hints += Found(verdict);
      EXPECT_FALSE(Proved(verdict)) << kind.name << " seed " << seed << "\n"
                                    << verdict.finding().explanation();
    }
    Print(kind.name, outcomes);
  }
  std::cout << cases << " clean cases, " << hints << " hints\n";
  return {cases, hints};
}

TEST(RoutingMatrix, NoCleanRouterIsProvedGuilty) {
  const Accused accused = JudgeClean(testing::CleanKinds());
  EXPECT_GE(accused.cases, 5'000);
  // A hint is a warning that may be incorrect. It must still be rare.
  EXPECT_LE(accused.hints, accused.cases / 2000);
}

TEST(RoutingMatrix, NoCleanRouterThatPosesIsProvedGuilty) {
  const Accused accused = JudgeClean(testing::PosedKinds());
  EXPECT_LE(accused.hints, accused.cases / 20);
}

// The evidence in the true pools and ranks: log2 of the number of possible kept sets of the
// refusing experts, and the bits of the pairs (specified as -N log2(1-f); N is the number of
// choices of experts below capacity, f the refused share of those that precede a later admission in
// their sequence).
struct Carried {
  double arrangement = 0;
  double pairs = 0;
};

Carried CarriedBy(const SyntheticRouting& routing) {
  Carried out;
  const RouterResult& result = routing.result();
  const RouterBatch& batch = routing.batch();
  const auto k = static_cast<size_t>(routing.spec().top_k);
  using CellKey = std::pair<int32_t, int32_t>;          // pool, expert
  std::map<CellKey, std::pair<double, double>> cells;   // kept, refused
  std::map<std::pair<CellKey, int64_t>, int64_t> last;  // last admission of a sequence
  const auto padding = [&](size_t row) { return !batch.padding.empty() && batch.padding[row]; };
  const auto cell_of = [&](size_t i) { return CellKey{result.pool[i / k], result.indices[i]}; };
  std::map<CellKey, int64_t> held;  // including padding
  for (size_t i = 0; i < result.keep.size(); ++i) {
    held[cell_of(i)] += result.keep[i];
    if (padding(i / k)) continue;
    auto& cell = cells[cell_of(i)];
    ++(result.keep[i] ? cell.first : cell.second);
    int64_t& at = last.try_emplace({cell_of(i), batch.sequence[i / k]}, -1).first->second;
    if (result.keep[i]) at = std::max(at, batch.position[i / k]);
  }
  for (const auto& [cell, counts] : cells) {
    out.arrangement += Log2Choose(counts.first + counts.second, counts.first);
  }
  std::vector<double> below(k), preceding(k), refused(k);
  for (size_t i = 0; i < result.keep.size(); ++i) {
    if (padding(i / k)) continue;
    if (held[cell_of(i)] < routing.capacity()) {
      ++below[i % k];
    } else if (batch.position[i / k] < last[{cell_of(i), batch.sequence[i / k]}]) {
      ++preceding[i % k];
      refused[i % k] += result.keep[i] == 0;
    }
  }
  for (size_t r = 0; r < k; ++r) {
    out.pairs = std::max(out.pairs, -below[r] * std::log2(1 - refused[r] / (preceding[r] + 1)));
  }
  return out;
}

TEST(RoutingMatrix, LeakingRoutersAreFoundWhereTheRecordingCarriesTheEvidence) {
  const uint64_t seeds = Seeds(), first = FirstSeed();
  std::cout << "leaking, seeds " << first << ".." << first + seeds - 1 << "\n";
  for (const Kind& kind : testing::LeakingKinds()) {
    std::map<std::string, int> outcomes;
    std::map<std::string, int> twins;
    int reported_by_none = 0, thinned = 0, carrying = 0, found = 0, proved = 0, inconclusive = 0,
        passed = 0;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const SyntheticRouting routing(kind.Make(seed));
      const v1::Verdict verdict = Judge(routing);
      ++outcomes[Outcome(verdict)];
      passed += verdict.kind() == v1::Verdict::KIND_PASS;
      inconclusive += verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE;
      const RoutingSpec& spec = routing.spec();
      const Carried evidence = CarriedBy(routing);
      const bool replayed = spec.policy == RouterPolicy::kScore ||
                            spec.policy == RouterPolicy::kScoreRankMajor ||
                            spec.policy == RouterPolicy::kPriority ||
                            spec.policy == RouterPolicy::kPriorityRankMajor ||
                            spec.policy == RouterPolicy::kRankMajor;
      const bool chooses = routing.result().indices.empty();
      bool carries = spec.record_pool_id && spec.declare_capacity && !chooses &&
                     evidence.arrangement >= 20 && (replayed || evidence.pairs >= 20);
      // If a causal router gives the same recording, the kinds cannot be distinguished. A replay
      // distinguishes a policy from refusals per token; pairs alone do not.
      std::string twin = carries ? CausalTwin(routing) : "";
      if (twin == testing::kThinned && replayed) twin.clear();
      if (!twin.empty()) {
        ++twins[twin];
        ++(twin == testing::kThinned ? thinned : reported_by_none);
        carries = false;
      }
      carrying += carries;
      found += carries && Found(verdict);
      proved += carries && Proved(verdict);
      if (carries && !Found(verdict) && carrying - found < 4) {
        std::cout << "    missed seed " << seed << ": " << verdict.reason() << "\n";
      }
      if (verdict.kind() == v1::Verdict::KIND_PASS && routing.LeaksByIntervention(20)) {
        const bool assumed =
            verdict.assumptions_size() > 0 && verdict.assumptions(0).find("no capacity") == 0;
        const std::string same = CausalTwin(routing);
        EXPECT_TRUE(assumed || (!same.empty() && same != testing::kThinned))
            << kind.name << " seed " << seed << "\n"
            << verdict.DebugString();
      }
    }
    Print(kind.name, outcomes);
    if (!twins.empty()) Print("  with a causal twin, not counted as carrying", twins);
    if (carrying >= 50) {
      EXPECT_LE(carrying - found, std::max(1.0, 0.01 * carrying)) << kind.name;
      EXPECT_LE(reported_by_none, 0.1 * (carrying + reported_by_none)) << kind.name;
      // A single recording may have too little evidence for races and reordered queues.
      EXPECT_LE(thinned, 0.4 * (carrying + thinned)) << kind.name;
    }
    std::cout << "    carrying " << carrying << ", found " << found << ", proved " << proved
              << "; inconclusive " << inconclusive << ", passed " << passed << " of " << seeds
              << "\n";
  }
}

}  // namespace
}  // namespace plumbline::rules
