// Routing lists of rollout records, end to end: the verdicts of train-infer-routing on choices
// without scores, and when they name the cause of drift.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

constexpr char kRouting[] = "causality/train-infer-routing";
constexpr char kDrift[] = "drift/logit-drift";

// 8 steps of 20 sequences of 20 tokens; a token has 8 of 64 experts in each of two layers.
struct Planted {
  double flips = 0;        // share of tokens for which one expert differs between the sides
  bool unrelated = false;  // all experts differ, at random
  double far = 0;          // share of tokens with d of deviation 0.9; for the others it is 0.01
  bool far_where_flipped = true;
};

Json Experts(std::mt19937& random, int first) {
  Json layers = Json::array();
  for (int layer = 0; layer < 2; ++layer) {
    Json experts = Json::array();
    for (int j = 0; j < 8; ++j)
      experts.push_back((first < 0 ? static_cast<int>(random() % 8) : (first + layer) % 8) + 8 * j);
    layers.push_back(experts);
  }
  return layers;
}

std::string Records(const Planted& run) {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  std::exponential_distribution<double> surprise(1.0);
  std::uniform_real_distribution<double> uniform;
  std::vector<Json> records;
  for (int i = 0; i < 160; ++i) {
    Json r = Rollout(i / 20, "s" + std::to_string(i), 20);
    for (size_t t = 0; t < 20; ++t) {
      const bool flipped = uniform(random) < run.flips;
      const bool far = run.far_where_flipped && run.flips > 0 ? flipped : uniform(random) < run.far;
      const double size = far && run.far > 0 ? 0.9 : 0.01;
      const double mu = -3 - surprise(random);  // for any pi the mean of its ratio is 1
      r["rollout_logprobs"][t] = mu;
      r["train_logprobs"][t] = std::min(0.0, mu + size * normal(random) - size * size / 2);
      Json experts = Experts(random, run.unrelated ? -1 : static_cast<int>(random() % 8));
      r["train_routing"].push_back(experts);
      if (run.unrelated) experts = Experts(random, -1);
      if (flipped) experts[1][3] = (experts[1][3].get<int>() + 1) % 8 + 24;
      r["rollout_routing"].push_back(experts);
    }
    records.push_back(r);
  }
  return Lines(records);
}

AuditResult Judged(const Planted& run) {
  const TempFolder dir;
  AuditOptions options;
  options.paths = {dir.Write("a.jsonl", Records(run))};
  auto result = RunAudit(options, nullptr);
  EXPECT_TRUE(result.ok() && !result->inputs_failed());
  return *std::move(result);
}

const v1::Verdict* Of(const AuditResult& result, const std::string& rule,
                      const std::string& layer) {
  for (const v1::Verdict* v : result.report.verdicts())
    if (v->rule() == rule && v->site().layer() == layer) return v;
  return nullptr;
}
const v1::Finding* FindingOf(const AuditResult& result, const std::string& rule,
                             const std::string& layer) {
  for (const v1::Finding* f : result.report.findings())
    if (f->rule() == rule && f->site().layer() == layer) return f;
  return nullptr;
}

TEST(RolloutRouting, EqualChoicesPassWithTheirAssumption) {
  const AuditResult result = Judged({});
  for (const char* layer : {"layers.0", "layers.1"}) {
    const v1::Verdict* verdict = Of(result, kRouting, layer);
    ASSERT_NE(verdict, nullptr);
    EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_PASS) << verdict->reason();
    EXPECT_THAT(verdict->assumptions(),
                ElementsAre("each side makes its own choices; neither replays the other's",
                            "equal sequence ids and positions mean the same token"));
  }
}

TEST(RolloutRouting, OtherChoicesAreCounted) {
  const AuditResult few = Judged({.flips = 0.03});
  EXPECT_EQ(Of(few, kRouting, "layers.0")->kind(), v1::Verdict::KIND_PASS);
  const v1::Finding* note = FindingOf(few, kRouting, "layers.1");
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->level(), v1::LEVEL_NOTE);  // rounding may be the reason
  EXPECT_EQ(note->cause().id(), "other-choices");
  EXPECT_NEAR(note->measured().value(), 0.03 / 8, 0.001);
  const AuditResult all = Judged({.unrelated = true});
  const v1::Finding* warning = FindingOf(all, kRouting, "layers.0");
  ASSERT_NE(warning, nullptr);
  EXPECT_EQ(warning->level(), v1::LEVEL_WARNING);
  EXPECT_NEAR(warning->measured().value(), 7. / 8, 0.02);
}

// Far values alone are noise, and other choices alone are noise; both together are router flips.
TEST(RolloutRouting, FlipsNameTheCauseOfTwoComponents) {
  const auto cause = [](const Planted& run) {
    const AuditResult result = Judged(run);
    const v1::Finding* finding = FindingOf(result, kDrift, "policy");
    return finding == nullptr ? "" : finding->cause().id();
  };
  EXPECT_EQ(cause({.flips = 0.03, .far = 0.03}), "router-flips");
  EXPECT_EQ(cause({.far = 0.03}), "noise");
  EXPECT_EQ(cause({.flips = 0.03}), "");
}

}  // namespace
}  // namespace plumbline::audit
