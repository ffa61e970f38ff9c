// The false-alarm budget of a run: the total over all rules, and the share of a stream, which
// depends only on the order of (attempt, step, site).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "analysis/statistics/alpha_shares.h"
#include "rules/catalogue.h"
#include "rules/engine/engine.h"
#include "tests/rules/support/accumulation_run.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::AccumulationRun;
using testing::Verdicts;
using testing::VerdictsOn;

constexpr char kRule[] = "precision/grad-accumulation";

TEST(Alpha, TheRulesTogetherTakeAtMostTheWhole) {
  double taken = 0;
  for (const CatalogueEntry& entry : Catalogue()) {
    EXPECT_GE(entry.info->alpha_weight, 0) << entry.info->id;
    taken += entry.info->alpha_weight;
  }
  EXPECT_LE(taken, 1);
  EXPECT_GT(taken, 0);
}

// Returns batches with a biased sum in each of `layers` at `step`, and the notice that the step is
// over.
v1::Batch Biased(const std::vector<std::string>& layers, int64_t step,
                 v1::Role role = v1::ROLE_TRAINER) {
  v1::Batch all;
  for (const std::string& layer : layers) {
    v1::Batch one = AccumulationRun({.adds = 1024, .layer = layer, .seed = 3});
    if (all.sources().empty()) *all.mutable_sources() = one.sources();
    for (v1::Evidence& e : *one.mutable_evidence()) {
      e.set_step(step);
      all.add_evidence()->Swap(&e);
    }
  }
  for (v1::Source& source : *all.mutable_sources()) source.set_role(role);
  test::AddProgress(&all, step);
  return all;
}

// Returns the share of the rule's alpha for streams, by layer, from the findings.
std::map<std::string, double> Shares(const Verdicts& verdicts) {
  const double budget = FindRule(kRule)->info->alpha_weight * kRunAlpha / 2;
  std::map<std::string, double> shares;
  for (const v1::Verdict& v : verdicts) {
    if (v.rule() != kRule) continue;
    EXPECT_EQ(v.finding().false_alarm().kind(), "probability") << v.reason();
    // The rank's share within the stream's share.
    shares[v.site().layer()] = v.finding().false_alarm().value() / ShareOfNumber(0) / budget;
  }
  return shares;
}
std::map<std::string, double> Shares(std::vector<v1::Batch> batches) {
  return Shares(VerdictsOn(std::move(batches), {.rules = {kRule}}));
}

double Trainer(uint64_t k) { return .5 * ShareOfNumber(k); }

void ExpectShares(const std::map<std::string, double>& got,
                  const std::map<std::string, double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [layer, share] : expected) EXPECT_NEAR(got.at(layer) / share, 1, 1e-9) << layer;
}

TEST(Alpha, ShareFollowsTheOrderOfSitesNotTheirSpelling) {
  const std::string q = "model.layers.12.self_attn.q_proj", z = "z", b = "B";
  ExpectShares(Shares({Biased({z, q, b}, 0)}), {{b, Trainer(0)}, {q, Trainer(1)}, {z, Trainer(2)}});
}

TEST(Alpha, AStepComesBeforeTheNextWhateverItsSites) {
  ExpectShares(Shares({Biased({"y"}, 0), Biased({"x", "y"}, 1), Biased({"a"}, 2)}),
               {{"y", Trainer(0)}, {"x", Trainer(1)}, {"a", Trainer(2)}});
}

TEST(Alpha, ArrivalChangesNothing) {
  v1::Batch all = Biased({"a", "b", "c", "d"}, 0);
  const auto expected = Shares({all});
  std::mt19937 rng(1);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(all.mutable_evidence()->pointer_begin(), all.mutable_evidence()->pointer_end(),
                 rng);
    EXPECT_EQ(Shares({all}), expected);
  }
}

// The order in which the steps of the roles end is random; each role counts its own streams.
TEST(Alpha, RolesDoNotMoveEachOther) {
  const auto trainer = Biased({"a", "c"}, 0), rollout = Biased({"b", "d"}, 0, v1::ROLE_ROLLOUT);
  const std::map<std::string, double> expected = {{"a", Trainer(0)},
                                                  {"c", Trainer(1)},
                                                  {"b", .25 * ShareOfNumber(0)},
                                                  {"d", .25 * ShareOfNumber(1)}};
  ExpectShares(Shares({trainer, rollout}), expected);
  ExpectShares(Shares({rollout, trainer}), expected);
}

TEST(Alpha, CountingGoesOnAfterACheckpoint) {
  Verdicts verdicts;
  const auto make = [&] {
    return std::move(Engine::Create({.rules = {kRule}}, [&](const v1::Verdict& v) {
                       verdicts.push_back(v);
                     }).value());
  };
  auto first = make();
  ASSERT_TRUE(first->Add(Biased({"m"}, 0)).ok());
  auto second = make();
  ASSERT_TRUE(second->Restore(first->Checkpoint()).ok());
  ASSERT_TRUE(second->Add(Biased({"a", "m"}, 1)).ok());
  second->Finish();
  ExpectShares(Shares(verdicts), {{"m", Trainer(0)}, {"a", Trainer(1)}});
}

}  // namespace
}  // namespace plumbline::rules
