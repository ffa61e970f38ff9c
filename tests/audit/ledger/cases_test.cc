// The test cases of the rules ledger/*: tests/rules/ledger/<rule>/<kind>-*.toml, where the kind
// states the expected result.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "audit/ledger/ledger_result.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

struct Counts {
  int findings = 0, inconclusive = 0, passes = 0;
};

Counts OfRule(const LedgerResult& result, const std::string& rule) {
  Counts counts;
  for (const v1::Verdict& verdict : result.verdicts) {
    if (verdict.rule() != rule) continue;
    counts.findings += verdict.kind() == v1::Verdict::KIND_FINDING ? 1 : 0;
    counts.inconclusive += verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE ? 1 : 0;
    counts.passes += verdict.kind() == v1::Verdict::KIND_PASS ? 1 : 0;
  }
  return counts;
}

TEST(LedgerCases, AreWhatTheirNameStates) {
  int cases = 0;
  const fs::path all = fs::path(PLUMBLINE_SOURCE_DIR) / "tests/rules/ledger";
  for (const auto& entry : fs::recursive_directory_iterator(all)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".toml") continue;
    SCOPED_TRACE(path.string());
    ++cases;
    auto file = ReadLedger(path.string());
    ASSERT_TRUE(file.ok()) << file.status();
    const auto result = JudgeLedger(*std::move(file), {});
    ASSERT_TRUE(result.ok()) << result.status();
    const Counts counts = OfRule(*result, "ledger/" + path.parent_path().filename().string());
    const std::string name = path.filename().string();
    if (name.starts_with("bad")) {
      EXPECT_EQ(counts.findings, 1);
    }
    if (name.starts_with("near-miss")) {
      EXPECT_EQ(counts.findings, 0);
      EXPECT_GT(counts.passes, 0) << "silent because it was not judged";
    }
    if (name.starts_with("inconclusive")) {
      EXPECT_EQ(counts.findings, 0);
      EXPECT_GT(counts.inconclusive, 0);
    }
  }
  EXPECT_GE(cases, 24);
}

// Texts keep to the lengths of a page's rows, and no title contains a number.
TEST(LedgerCases, FindingsReadWell) {
  const fs::path all = fs::path(PLUMBLINE_SOURCE_DIR) / "tests/rules/ledger";
  for (const auto& entry : fs::recursive_directory_iterator(all)) {
    if (entry.path().extension() != ".toml") continue;
    auto file = ReadLedger(entry.path().string());
    ASSERT_TRUE(file.ok());
    const auto result = JudgeLedger(*std::move(file), {});
    ASSERT_TRUE(result.ok());
    for (const v1::Finding* finding : result->findings()) {
      EXPECT_LE(finding->title().size(), 70u) << finding->title();
      EXPECT_TRUE(std::none_of(finding->title().begin(), finding->title().end(),
                               [](char c) { return c >= '0' && c <= '9'; }));
      EXPECT_FALSE(finding->fix().empty());
      EXPECT_FALSE(finding->explanation().empty());
      EXPECT_TRUE(finding->has_measured() && finding->has_threshold());
      EXPECT_EQ(finding->fingerprint().size(), 32u);
      EXPECT_EQ(finding->strength() == v1::STRENGTH_STATISTICAL, finding->has_false_alarm());
    }
  }
}

}  // namespace
}  // namespace plumbline::audit
