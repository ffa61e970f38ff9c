// Tests stored numbers as an alternative to batch statistics: the evidence that excludes them.
#include "analysis/routing/policies/stored.h"

#include <gtest/gtest.h>

#include "analysis/routing/policies/bucket.h"
#include "analysis/routing/policies/normalised.h"
#include "tests/rules/support/synthetic_routing.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::analysis {
namespace {

using rules::testing::PoolUnit;
using rules::testing::RoutingSpec;
using rules::testing::SyntheticRouting;

constexpr const char* kRule = "causality/moe-future-leak";

StoredNumbers Bars(double least, double most, const char* what = "bars") {
  StoredNumbers bars(what, 2);
  bars.AtLeast(0, least);
  bars.AtMost(0, most);
  return bars;
}

TEST(StoredRules, OnePoolExcludesNothing) {
  StoredRules rules;
  EXPECT_FALSE(rules.excluded());
  rules.Take({});
  EXPECT_FALSE(rules.excluded());
  rules.Take({Bars(0.2, 0.3)});
  EXPECT_FALSE(rules.excluded());
  rules.Take({Bars(0.25, 0.4)});
  EXPECT_FALSE(rules.excluded());
}

TEST(StoredRules, AnotherNumberExcludesATable) {
  StoredRules rules;
  rules.Take({Bars(0.2, 0.3)});
  rules.Take({Bars(0.31, 0.4)});
  EXPECT_TRUE(rules.excluded());
  rules.Take({Bars(0.2, 0.3)});
  EXPECT_TRUE(rules.excluded()) << "once excluded, always";
}

TEST(StoredRules, EveryTableThatGivesTheCallsMustBeExcluded) {
  StoredRules rules;
  rules.Take({Bars(0.2, 0.3), Bars(5, 6, "places")});
  rules.Take({Bars(0.31, 0.4), Bars(5, 7, "places")});
  EXPECT_FALSE(rules.excluded());
  // A table that does not reproduce this call is excluded.
  rules.Take({Bars(0.31, 0.4)});
  EXPECT_TRUE(rules.excluded());
}

TEST(StoredRules, ComeBackFromTheArchive) {
  StoredRules rules, again;
  rules.Take({Bars(0.2, 0.3)});
  Archive out;
  rules.Persist(out);
  const std::string bytes = out.Take();
  Archive in(bytes);
  again.Persist(in);
  ASSERT_TRUE(in.ok()) << in.error();
  again.Take({Bars(0.31, 0.4)});
  EXPECT_TRUE(again.excluded());
}

v1::Batch Call(uint64_t seed, int64_t step, PoolUnit pool = PoolUnit::kMicrobatch) {
  RoutingSpec spec;
  spec.policy = RouterPolicy::kScore;
  spec.length = 128;
  spec.seed = seed;
  spec.pool = pool;
  v1::Batch batch = SyntheticRouting(spec).Batch(0, 1, step);
  batch.set_sequence(static_cast<uint64_t>(step) + 1);
  return batch;
}

bool Proved(const v1::Verdict& verdict) {
  return verdict.kind() == v1::Verdict::KIND_FINDING &&
         verdict.finding().strength() == v1::STRENGTH_PROVED;
}

TEST(StoredNumbersInTheRule, OnePoolIsAHintAndStatesWhatToRecord) {
  const v1::Verdict verdict =
      rules::testing::Only(rules::testing::VerdictsOf(kRule, {Call(1, 0)}), kRule);
  ASSERT_EQ(verdict.kind(), v1::Verdict::KIND_FINDING) << verdict.reason();
  EXPECT_EQ(verdict.finding().strength(), v1::STRENGTH_HEURISTIC);
  EXPECT_NE(verdict.finding().fix().find("several pools"), std::string::npos);
}

TEST(StoredNumbersInTheRule, SeveralPoolsProve) {
  EXPECT_TRUE(Proved(rules::testing::Only(
      rules::testing::VerdictsOf(kRule, {Call(1, 0, PoolUnit::kPack)}), kRule)));
}

TEST(StoredNumbersInTheRule, TheNextStepProvesAndTheSameAgainDoesNot) {
  const auto other = rules::testing::VerdictsOf(kRule, {Call(1, 0), Call(2, 1)});
  ASSERT_EQ(other.size(), 2u);
  EXPECT_FALSE(Proved(other[0]));
  EXPECT_TRUE(Proved(other[1])) << other[1].finding().fix();
  const auto same = rules::testing::VerdictsOf(kRule, {Call(1, 0), Call(1, 1)});
  ASSERT_EQ(same.size(), 2u);
  EXPECT_FALSE(Proved(same[1])) << "a text that comes again asks for the same numbers";
}

TEST(StoredNumbersInTheRule, APolicyThatIsNotTheConfigurationsProvesNothing) {
  v1::Batch batch = Call(1, 0, PoolUnit::kPack);
  auto* config = batch.mutable_evidence(0)->mutable_routing()->mutable_config();
  for (const char* policy : {"", "fifo-capacity"}) {
    config->set_policy(policy);
    EXPECT_FALSE(Proved(rules::testing::Only(rules::testing::VerdictsOf(kRule, {batch}), kRule)))
        << policy;
  }
}

// ---- token buckets ----

// One of two experts is chosen at random per row; the other always keeps.
class Requested {
 public:
  explicit Requested(uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  double Draw() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }
  // admit(place, asked so far)
  template <typename Admit>
  bool Fits(int rows, Admit admit) {
    v1::Routing routing;
    RoutingCase c;
    c.routing = &routing;
    c.experts = 2;
    c.top_k = 1;
    c.pool_basis = PoolBasis::kRecorded;
    int requested = 0;
    for (int t = 0; t < rows; ++t) {
      const bool hot = Draw() < 0.6;
      c.choices.push_back({t, hot ? 0 : 1, 0, !hot || admit(t, requested)});
      requested += hot;
      c.sequence.push_back(0);
      c.position.push_back(t);
      c.pool.push_back(0);
      c.rows.push_back(RowState::kExplained);
    }
    c.tokens = rows;
    c.judged_rows = rows;
    c.pool_rows = {rows};
    c.IndexChoices();
    return BucketsFit(c, FindSaturation(c), TimeQueues(c));
  }

 private:
  uint64_t state_;
};

TEST(TokenBuckets, FitWhateverTheirRateAndSize) {
  int fitted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Requested requested(seed);
    const double rate = 0.1 + 0.4 * requested.Draw(), size = 1 + std::floor(6 * requested.Draw());
    double level = size, last = 0;
    fitted += requested.Fits(200, [&](int t, int) {
      level = std::min(size, level + rate * (t - last));
      last = t;
      if (level < 1) return false;
      level -= 1;
      return true;
    });
  }
  EXPECT_GE(fitted, 59);
}

TEST(TokenBuckets, DoNotFitDraws) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Requested requested(seed), draw(seed + 1000);
    EXPECT_FALSE(requested.Fits(60, [&](int, int) { return draw.Draw() < 0.6; })) << seed;
  }
}

}  // namespace
}  // namespace plumbline::analysis
