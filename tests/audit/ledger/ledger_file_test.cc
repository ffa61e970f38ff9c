// Errors in a ledger: each is reported with file, line and what was expected; damaged files are
// either refused or read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "audit/ledger/ledger_result.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WorkedExample() {
  return test::ReadFile(PLUMBLINE_SOURCE_DIR "/tests/audit/ledger/data/worked_example.toml");
}

std::string Error(const std::string& text) {
  return std::string(ParseLedger(text, "l.toml").status().message());
}

// The example with one text replaced.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = WorkedExample();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(LedgerFile, ReadsTheExample) {
  const auto file = ParseLedger(WorkedExample(), "l.toml");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->ledger.target, 5e20);
  EXPECT_EQ(file->ledger.tried, 9);
  EXPECT_EQ(file->ledger.runs.size(), 19u);
  ASSERT_EQ(file->ledger.multipliers.size(), 4u);
  EXPECT_TRUE(file->ledger.multipliers[0].kept);
  EXPECT_EQ(file->ledger.runs[1].other, 3.596);
  EXPECT_FALSE(file->ledger.runs[0].other.has_value());
  EXPECT_EQ(file->ledger.stack->arms.with.size(), 2u);
}

TEST(LedgerFile, MistakesHaveFileLineAndWhatWasExpected) {
  const struct {
    std::string from, to, states;
  } mistakes[] = {
      {"target = 5e20", "target = -1",
       "l.toml:3: expected target to be a number above 0, found -1"},
      {"target = 5e20", "target = \"big\"", "a number above 0, found \"big\""},
      {"target = 5e20", "target = nan", "l.toml:3: expected target to be a number above 0"},
      {"target = 5e20", "", "l.toml:2: expected target in [ledger]"},
      {"target = 5e20", "target = 5e20 5", "expected TOML"},
      {"tried = 9", "tried = 3", "l.toml:4: expected tried to be at least the 4 multipliers"},
      {"tried = 9", "tried = 9.5", "expected tried to be a whole number, found 9.5"},
      {"tried = 9", "tired = 9", "found tired; did you mean \"tried\"?"},
      {"seed = 0", "seed = 0.5", "l.toml:9: expected seed to be a whole number"},
      {"loss = 4.195", "loss = 0", "expected loss to be a number above 0"},
      {"loss = 4.195", "loss = inf", "expected loss to be a number above 0"},
      {"loss = 4.195", "lss = 4.195", "expected loss in [[run]]"},
      {"other = 3.596", "other = -3.596", "expected other to be a number above 0"},
      {"id = \"b19a\"", "id = \"b18\"", "ids that differ, found b18 twice"},
      {"id = \"b19a\"", "id = \"\"", "expected id to be a text that is not empty"},
      {"claimed = 1.1", "claimed = 0", "expected claimed to be a number above 0"},
      {"claimed = 1.1", "", "expected claimed in [[multiplier]]"},
      {"name = \"b\"", "name = \"a\"", "names that differ, found a twice"},
      {"name = \"b\"", "name = \"b\"\nkept = 1", "expected kept to be true or false, found 1"},
      {"with = [\"c19s0\"]", "with = []", "expected with to be a list of texts"},
      {"with = [\"c19s0\"]", "with = [\"c19s\"]", "which no [[run]] has; did you mean \"c19s0\"?"},
      {"with = [\"c19s0\"]", "with = [\"c19s0\", \"c19s0\"]", "found c19s0 twice"},
      {"with = [\"c19s0\"]", "with = [\"c19s0\", \"b18\"]", "found b18 in both"},
      {"with = [\"c19s0\"]", "with = [\"c19s0\", \"a19s0\"]", "one run of each scale and seed"},
      {"with = [\"c19s0\"]", "with = \"c19s0\"", "expected with to be a list of texts"},
      {"[baseline]\nruns = [\"b18\", ", "[baseline]\nruns = [\"b18\"] #", "at least 2 scales"},
      {"[baseline]\nruns", "[baseline]\nrun", "expected runs in [baseline]"},
      {"[[multiplier]]", "[multiplier]", "expected"},
      {"[stack]", "[stock]", "found stock; did you mean \"stack\"?"},
      {"[stack]", "[[stack]]", "expected stack to be a table, [stack]"},
  };
  for (const auto& [from, to, states] : mistakes) {
    const std::string error = Error(Changed(from, to));
    EXPECT_THAT(error, HasSubstr(states)) << from << " -> " << to;
    EXPECT_THAT(error, StartsWith("l.toml:"));
    EXPECT_THAT(error, HasSubstr(": expected "));
  }
}

TEST(LedgerFile, WhatIsMissingAltogether) {
  EXPECT_THAT(Error(""), StartsWith("l.toml:"));
  EXPECT_THAT(Error("[ledger]\ntarget = 1e20\n"), HasSubstr("[[run]] tables"));
  EXPECT_THAT(Error(Changed("[baseline]", "[baselines]")), HasSubstr("expected baseline"));
}

TEST(LedgerFile, NoScaleInCommon) {
  const std::string error =
      Error(Changed("with = [\"c19s0\"]\nwithout = [\"b18\", \"b19a\", \"b19b\", ",
                    "with = [\"c19s0\"]\nwithout = [\"b18\", "));
  EXPECT_THAT(error, HasSubstr("runs with and without c of the same FLOPs"));
}

TEST(LedgerFile, LeaveOutsNameMultipliers) {
  const std::string out = "\n[[stack.leave_out]]\nname = \"%\"\nruns = [\"b20a\"]\n";
  const auto with = [&](const std::string& name) {
    std::string text = out;
    return WorkedExample() + text.replace(text.find('%'), 1, name);
  };
  EXPECT_TRUE(ParseLedger(with("d"), "l.toml").ok()) << Error(with("d"));
  EXPECT_THAT(Error(with("dd")), HasSubstr("the name of a multiplier, found dd"));
  EXPECT_THAT(Error(with("d") + "[[stack.leave_out]]\nname = \"d\"\nruns = [\"b20b\"]\n"),
              HasSubstr("found d twice"));
}

TEST(LedgerFile, OnIsATextOrAList) {
  for (const char* on : {"on = \"base\"\n", "on = [\"b\", \"c\"]\n", "on = []\n"})
    EXPECT_EQ(Error(Changed("claimed = 1.1\n", std::string("claimed = 1.1\n") + on)), "") << on;
  EXPECT_THAT(Error(Changed("claimed = 1.1\n", "claimed = 1.1\non = 3\n")),
              HasSubstr("expected on to be"));
}

TEST(LedgerFile, ReportsAreRead) {
  const test::TempFolder dir;
  const auto with = [&](const std::string& report) {
    test::WriteFile(dir.File("r.json"), report);
    const std::string text = Changed("loss = 4.195", "loss = 4.195\nreport = \"r.json\"");
    return std::string(ParseLedger(text, dir.File("l.toml")).status().message());
  };
  EXPECT_EQ(with(R"({"schema": "plumbline.report/1", "findings": []})"), "");
  for (const char* bad : {"", "[]", "{", "{\"schema\": \"plumbline.report/2\", \"findings\": []}",
                          "{\"schema\": \"plumbline.report/1\"}",
                          "{\"schema\": \"plumbline.report/1\", \"findings\": [3]}"}) {
    EXPECT_THAT(with(bad), HasSubstr("expected report to be a JSON report of plumb audit")) << bad;
  }
  const std::string text = Changed("loss = 4.195", "loss = 4.195\nreport = \"none.json\"");
  EXPECT_THAT(std::string(ParseLedger(text, dir.File("l.toml")).status().message()),
              HasSubstr("none.json: expected a readable file"));
}

TEST(LedgerFile, ABaselineThatDoesNotFall) {
  auto file = ParseLedger(Changed("loss = 2.652", "loss = 9"), "l.toml");
  ASSERT_TRUE(file.ok());
  const auto result = JudgeLedger(*std::move(file), {});
  EXPECT_THAT(std::string(result.status().message()), StartsWith("l.toml:"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("exponent 0.02 to 0.6"));
}

// Bytes changed, cut and doubled: the result is an error message or a ledger that can be judged.
TEST(LedgerFile, DamagedFiles) {
  std::mt19937_64 random(3);
  const std::string whole = WorkedExample();
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    const size_t at = random() % text.size();
    if (i % 4 == 0) text.resize(at);
    if (i % 8 == 1) text[at] = static_cast<char>(random());
    if (i % 8 == 5) {
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) text[digit] = static_cast<char>('0' + random() % 10);
    }
    if (i % 4 == 2) text.erase(at, random() % 40);
    if (i % 4 == 3) text.insert(at, text.substr(random() % text.size(), random() % 200));
    auto file = ParseLedger(text, "l.toml");
    if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), StartsWith("l.toml:"));
      continue;
    }
    ++read;
    const auto result = JudgeLedger(*std::move(file), {});
    if (result.ok()) {
      EXPECT_FALSE(LedgerJson(*result).empty());
    }
  }
  EXPECT_GT(read, 10) << "some damage is a change of a number";
}

}  // namespace
}  // namespace plumbline::audit
