// Which findings a report shows: those that are not in an earlier report, those that reach a step.
#include "audit/session/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "audit/render/json_report.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using test::TempFolder;
using ::testing::HasSubstr;

v1::Verdict Found(const std::string& rule, const std::string& layer, const std::string& op,
                  int64_t last = 5, const std::string& cause = "") {
  v1::Verdict verdict;
  verdict.set_rule(rule);
  verdict.set_kind(v1::Verdict::KIND_FINDING);
  verdict.mutable_site()->set_run("run");
  verdict.mutable_site()->set_layer(layer);
  verdict.mutable_site()->set_op(op);
  verdict.mutable_site()->set_step_last(last);
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(rule);
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_strength(v1::STRENGTH_PROVED);
  finding.set_title("title");
  finding.mutable_cause()->set_id(cause);
  *finding.mutable_site() = verdict.site();
  finding.set_fingerprint(rule + layer + op);
  return verdict;
}

AuditResult ResultOf(const std::vector<v1::Verdict>& verdicts) {
  AuditResult result;
  for (const v1::Verdict& verdict : verdicts) result.report.Add(verdict);
  return result;
}

std::string Layers(const AuditResult& result) {
  std::string layers;
  for (const v1::Finding* finding : result.findings()) layers += finding->site().layer();
  return layers;
}

TEST(Baseline, RuleLayerAndOpTogetherAreWhatIsKnown) {
  const std::string before =
      RenderJson(ResultOf({Found("g/a", "1", "x"), Found("g/b", "2", "\xff")}));
  AuditResult now =
      ResultOf({Found("g/a", "1", "x", 900), Found("g/a", "3", "x"), Found("g/b", "1", "x"),
                Found("g/a", "1", "y"), Found("g/b", "2", "\xff")});
  now.selection.baseline = *Baseline::Parse(before, "before.json");
  const Selection::Result chosen = now.selection.Of(now.report.findings());
  EXPECT_EQ(chosen.known, 2u);
  EXPECT_EQ(chosen.shown.size(), 3u);
  const std::string json = RenderJson(now);
  EXPECT_THAT(json, HasSubstr("\"left_out\""));
  EXPECT_FALSE(RenderJson(ResultOf({})).find("left_out") != std::string::npos);
}

TEST(Baseline, ThatNothingWasJudgedIsAlwaysNew) {
  const auto none = Found("meta/probe-coverage", "", "", 0, "no-verdict");
  AuditResult result = ResultOf({none});
  result.selection.baseline = *Baseline::Parse(RenderJson(result), "b.json");
  result.selection.since = 100;
  EXPECT_EQ(result.findings().size(), 1u);
}

TEST(Since, LeavesOutWhatWasOverBefore) {
  AuditResult result = ResultOf({Found("g/a", "1", "x", 9), Found("g/a", "2", "x", 10),
                                 Found("g/a", "3", "x", 11), Found("meta/data-loss", "4", "", 0)});
  EXPECT_EQ(Layers(result), "1234");
  result.selection.since = 10;
  EXPECT_EQ(Layers(result), "234");
  EXPECT_EQ(result.selection.Of(result.report.findings()).before, 1u);
}

TEST(Baseline, StatesWhatIsNoReport) {
  const auto wrong = [](const std::string& text) {
    const auto baseline = Baseline::Parse(text, "b.json");
    return baseline.ok() ? "" : std::string(baseline.status().message());
  };
  EXPECT_THAT(wrong(""), HasSubstr("b.json: byte 1: expected a report"));
  EXPECT_THAT(wrong("{\"schema\": 1}"), HasSubstr("found other JSON"));
  EXPECT_THAT(wrong("[1, 2]"), HasSubstr("found other JSON"));
  EXPECT_THAT(wrong("{\"schema\": \"plumbline.rules/1\"}"), HasSubstr("schema plumbline.rules/1"));
  EXPECT_THAT(wrong("{\"schema\": \"plumbline.report/1\"}"), HasSubstr("a list of findings"));
  EXPECT_THAT(wrong("{\"schema\": \"plumbline.report/1\", \"findings\": [{\"rule\": \"a\"}]}"),
              HasSubstr("findings[0]"));
  EXPECT_THAT(wrong("{\"x\": 1e999}"), HasSubstr("number too large"));
  EXPECT_EQ(wrong("{\"schema\": \"plumbline.report/1\", \"findings\": []}"), "");
  std::string deep(200'000, '[');
  EXPECT_THAT(wrong(deep), HasSubstr("expected a report"));
  EXPECT_FALSE(Baseline::Read("/nonexistent").ok());
  EXPECT_FALSE(Baseline::Read("/").ok());
}

// Bytes of a report lost or changed: an error or a smaller baseline, never a crash.
TEST(Baseline, DamageIsAnErrorOrARead) {
  const std::string whole = RenderJson(ResultOf({Found("g/a", "1", "x"), Found("g/b", "2", "y")}));
  for (size_t cut = 0; cut + 2 < whole.size(); cut += 7)
    EXPECT_FALSE(Baseline::Parse(whole.substr(0, cut), "b.json").ok()) << cut;
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto baseline = Baseline::Parse(damaged, "b.json");
    if (!baseline.ok()) {
      EXPECT_THAT(std::string(baseline.status().message()), HasSubstr("b.json: "));
    }
  }
}

}  // namespace
}  // namespace plumbline::audit
