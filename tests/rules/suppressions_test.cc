// Tests suppressions: their syntax, their matching, and the handling of unused ones.
#include "rules/suppressions.h"

#include <gtest/gtest.h>

#include "rules/engine/engine.h"
#include "rules/engine/report.h"

namespace plumbline::rules {
namespace {

constexpr int32_t kToday = 20605;  // 2026-06-01

std::string ErrorOf(const std::string& text) {
  const auto list = ParseSuppressions(text, "s.toml");
  return list.ok() ? "" : std::string(list.status().message());
}

std::vector<Suppression> Parsed(const std::string& text) {
  auto list = ParseSuppressions(text, "s.toml");
  EXPECT_TRUE(list.ok()) << list.status();
  return list.ok() ? *std::move(list) : std::vector<Suppression>();
}

v1::Finding FindingAt(const std::string& rule, const std::string& layer, int64_t first,
                      int64_t last) {
  v1::Finding finding;
  finding.set_rule(rule);
  finding.mutable_site()->set_run("exp-1");
  finding.mutable_site()->set_layer(layer);
  finding.mutable_site()->set_op("routing");
  finding.mutable_site()->set_step_first(first);
  finding.mutable_site()->set_step_last(last);
  finding.set_fingerprint(Fingerprint(rule, finding.site()));
  return finding;
}

constexpr char kRest[] = "reason = \"known\"\nexpires = 2026-12-31\n";

bool Matches(const std::string& keys, const v1::Finding& finding) {
  const auto list = Parsed("[[suppress]]\n" + keys + kRest);
  return list.size() == 1 && list[0].Matches(finding);
}

TEST(Suppressions, EverythingThatIsSetMustMatch) {
  const v1::Finding f = FindingAt("causality/moe-future-leak", "layers.3", 100, 120);
  EXPECT_TRUE(Matches("rule = \"causality/*\"\n", f));
  EXPECT_TRUE(Matches("rule = \"*\"\nrun = \"exp-?\"\nlayer = \"layers.3\"\n", f));
  EXPECT_TRUE(Matches("rule = \"*\"\nsteps = [100, 120]\n", f));
  EXPECT_TRUE(Matches("rule = \"*\"\nfingerprint = \"" + f.fingerprint().substr(0, 8) + "\"\n", f));
  EXPECT_FALSE(Matches("rule = \"precision/*\"\n", f));
  EXPECT_FALSE(Matches("rule = \"*\"\nlayer = \"layers.30\"\n", f));
  EXPECT_FALSE(Matches("rule = \"*\"\nrun = \"other\"\n", f));
  EXPECT_FALSE(Matches("rule = \"*\"\nsteps = [100, 119]\n", f)) << "a part is not all";
  EXPECT_FALSE(Matches("rule = \"*\"\nfingerprint = \"00000000\"\n", f));
}

TEST(Suppressions, WrongFilesAreNamedByLineAndKey) {
  const std::string good = std::string("[[suppress]]\nrule = \"causality/*\"\n") + kRest;
  EXPECT_EQ(ErrorOf(good), "");
  EXPECT_EQ(ErrorOf(""), "");
  EXPECT_EQ(Parsed("[[suppress]]\nrule = \"*\"\nreason = \"r\"\nexpires = \"2026-06-01\"\n")
                .at(0)
                .expires,
            kToday);
  EXPECT_EQ(ErrorOf("[[suppress]]\nrule = \"*\"\nlayr = \"x\"\n" + std::string(kRest)),
            "s.toml:3: unknown key \"layr\" in [[suppress]]; did you mean \"layer\"?");
  EXPECT_EQ(ErrorOf("[[suppress]]\nrule = \"*\"\nexpires = 2026-12-31\n"),
            "s.toml:1: a suppression needs reason: rule (a glob), reason (a text) and expires (a "
            "date)");
  EXPECT_EQ(ErrorOf("[[suppress]]\nrule = \"*\"\nreason = \"r\"\nexpires = \"tomorrow\"\n"),
            "s.toml:4: expires must be a date (2026-12-31), found \"tomorrow\"");
  EXPECT_NE(ErrorOf("[[suppress]]\nrule = \"causality/moe-future-leek\"\n" + std::string(kRest))
                .find("moe-future-leak"),
            std::string::npos);
  for (const char* wrong :
       {"rule = 3\n", "rule = \"*\"\nsteps = [5, 4]\n", "rule = \"*\"\nsteps = 5\n",
        "rule = \"*\"\nsteps = [1, 2.5]\n", "rule = \"*\"\nsteps = [-1, 5]\n",
        "rule = \"*\"\nfingerprint = \"d6bc\"\n", "rule = \"*\"\nfingerprint = \"XYZ45678\"\n",
        "rule = \"*\"\nreason = \"\"\n", "rule = \"*\"\nexpires = 2026-02-30\n",
        "rule = \"*\"\nrun = \"\"\n"}) {
    EXPECT_NE(
        ErrorOf("[[suppress]]\n" + std::string(wrong) + "reason = \"a\"\nexpires = 2026-01-01\n"),
        "")
        << wrong;
  }
  EXPECT_NE(ErrorOf("[suppress]\nrule = \"*\"\n"), "");
  EXPECT_NE(ErrorOf("suppress = 3\n"), "");
  EXPECT_NE(ErrorOf("[[suppres]]\n"), "");
  EXPECT_EQ(ErrorOf("[[suppress\n").rfind("s.toml:1:", 0), 0u);
}

TEST(Suppressions, DatesAreDaysOfTheCalendar) {
  EXPECT_EQ(DateText(kToday), "2026-06-01");
  EXPECT_EQ(DateText(0), "1970-01-01");
  EXPECT_EQ(DayOf(int64_t{kToday} * 86400 * 1'000'000'000), kToday);
  EXPECT_EQ(DayOf(int64_t{kToday} * 86400 * 1'000'000'000 - 1), kToday - 1);
}

TEST(Suppressions, HoldsThroughItsLastDay) {
  Suppressor suppressor;
  suppressor.Set(Parsed(std::string("[[suppress]]\nrule = \"*\"\nreason = \"r\"\nexpires = ") +
                        "2026-06-01\n"),
                 kToday);
  v1::Finding f = FindingAt("causality/moe-future-leak", "a", 0, 0);
  suppressor.Mark(&f);
  EXPECT_TRUE(f.suppressed());
  EXPECT_TRUE(suppressor.Expired("exp-1").empty());
  const auto list = Parsed("[[suppress]]\nrule = \"*\"\nreason = \"r\"\nexpires = 2026-06-01\n");
  EXPECT_TRUE(suppressor.Is(list, kToday - 5)) << "another day that decides nothing";
  EXPECT_FALSE(suppressor.Is(list, kToday + 1));
  suppressor.Set(list, kToday + 1);
  f = FindingAt("causality/moe-future-leak", "a", 0, 0);
  suppressor.Mark(&f);
  EXPECT_FALSE(f.suppressed());
  EXPECT_EQ(suppressor.Expired("exp-1").size(), 1u);
  EXPECT_TRUE(suppressor.Unused("exp-1", [](const std::string&) { return true; }).empty());
}

TEST(Suppressions, ExpiryLearnsWhichRunsItConcerns) {
  Suppressor suppressor;
  suppressor.Set(Parsed("[[suppress]]\nrule = \"*\"\nrun = \"exp-?\"\nreason = \"r\"\n"
                        "expires = 2026-05-31\n"),
                 kToday);
  EXPECT_EQ(suppressor.Expired("exp-1").size(), 1u);
  EXPECT_TRUE(suppressor.Expired("other").empty());
}

// Tests that the matches of the entries survive a reload of the file.
TEST(Suppressions, AMatchOutlivesAReload) {
  const std::string known = std::string("[[suppress]]\nrule = \"causality/*\"\n") + kRest;
  const std::string fresh = std::string("[[suppress]]\nrule = \"health/*\"\n") + kRest;
  Suppressor suppressor;
  suppressor.Set(Parsed(known), kToday);
  v1::Finding f = FindingAt("causality/moe-future-leak", "a", 0, 0);
  suppressor.Mark(&f);
  suppressor.Set(Parsed(fresh + known), kToday);
  const auto unused = suppressor.Unused("exp-1", [](const std::string&) { return true; });
  ASSERT_EQ(unused.size(), 1u);
  EXPECT_EQ(unused[0].site().layer(), "health/*");
}

// A suppression must not hide the report that it is unused.
TEST(Suppressions, NeverHidesItsOwnRule) {
  Suppressor suppressor;
  suppressor.Set(Parsed(std::string("[[suppress]]\nrule = \"*\"\n") + kRest), kToday);
  v1::Finding f = FindingAt("meta/unused-suppression", "*", 0, 0);
  suppressor.Mark(&f);
  EXPECT_FALSE(f.suppressed());
}

v1::Verdict VerdictOf(const v1::Finding& finding) {
  v1::Verdict verdict;
  verdict.set_kind(v1::Verdict::KIND_FINDING);
  verdict.set_rule(finding.rule());
  *verdict.mutable_site() = finding.site();
  *verdict.mutable_finding() = finding;
  return verdict;
}

TEST(Suppressions, AFindingIsHiddenAsLongAsAllOfItIs) {
  Report report;
  v1::Finding f = FindingAt("causality/moe-future-leak", "a", 0, 0);
  f.set_level(v1::LEVEL_ERROR);
  f.set_suppressed(true);
  EXPECT_FALSE(report.Add(VerdictOf(f)).unsuppressed);
  EXPECT_TRUE(report.findings()[0]->suppressed());
  f.mutable_site()->set_step_last(5);
  EXPECT_FALSE(report.Add(VerdictOf(f)).unsuppressed);
  EXPECT_TRUE(report.findings()[0]->suppressed());
  f.set_suppressed(false);
  f.set_level(v1::LEVEL_NOTE);
  EXPECT_TRUE(report.Add(VerdictOf(f)).unsuppressed);
  EXPECT_FALSE(report.findings()[0]->suppressed());
  EXPECT_EQ(report.findings()[0]->level(), v1::LEVEL_ERROR);
  f.set_suppressed(true);
  EXPECT_FALSE(report.Add(VerdictOf(f)).unsuppressed);
  EXPECT_FALSE(report.findings()[0]->suppressed());
}

TEST(Suppressions, AJournalHoldsThemWhole) {
  const auto list = Parsed(std::string("[[suppress]]\nrule = \"causality/*\"\nrun = \"a\"\nlayer = "
                                       "\"b\"\nfingerprint = \"0123456789\"\nsteps = [0, 7]\n") +
                           kRest + "[[suppress]]\nrule = \"*\"\n" + kRest);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(FromMessage(ToMessage(list, kToday)), list);
  EXPECT_EQ(list[0].Words(), "run=a layer=b fingerprint=0123456789 steps=0-7");
  EXPECT_EQ(list[1].Words(), "any site");
}

}  // namespace
}  // namespace plumbline::rules
