// plumb ledger as a user runs it: the worked example in JSON and words, exit statuses, options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/audit/plumb_process.h"
#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const char kExample[] = PLUMBLINE_SOURCE_DIR "/tests/audit/ledger/data/worked_example.toml";

Json Estimated(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"ledger", kExample, "--format", "json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Json::parse(RunPlumb(arguments).output);
}

std::vector<std::string> Flagged(const Json& json, const std::string& rule) {
  std::vector<std::string> names;
  for (const auto& finding : json["findings"]) {
    if (finding["rule"] == rule) names.push_back(finding["site"]["op"]);
  }
  return names;
}

TEST(LedgerCli, TheWorkedExample) {
  const Json json = Estimated();
  EXPECT_EQ(json["schema"], "plumbline.ledger/1");
  const double y[] = {0.0986, 0.0591, 0.1869, 0.1708}, s[] = {0.0937, 0.0536, 0.1632, 0.1625};
  for (size_t i = 0; i < 4; ++i) {
    const Json& m = json["multipliers"][i];
    EXPECT_NEAR(m["y"], y[i], 6e-5);
    EXPECT_NEAR(m["s"], s[i], 6e-5);
    EXPECT_EQ(m["kept"], true);
    EXPECT_EQ(m.size(), 6u) << "name, y, sd, s, claimed, kept";
  }
  EXPECT_NEAR(json["product"]["value"], 1.605, 5e-4);
  EXPECT_NEAR(json["product"]["seeds"][0], 1.451, 5e-4);
  EXPECT_NEAR(json["product"]["seeds"][1], 1.775, 5e-4);
  EXPECT_NEAR(json["product"]["all"][0], 1.370, 5e-4);
  EXPECT_NEAR(json["product"]["all"][1], 1.880, 5e-4);
  EXPECT_NEAR(json["stack"]["value"], 1.481, 5e-4);
  EXPECT_NEAR(json["stack"]["overstated"], 2.58, 5e-3);
  EXPECT_NEAR(json["noise"]["sigma"], 0.002041, 5e-7);
  using Names = std::vector<std::string>;
  EXPECT_EQ(Flagged(json, "ledger/one-seed"), Names({"c"}));
  EXPECT_EQ(Flagged(json, "ledger/small-scale"), Names({"c"}));
  EXPECT_EQ(Flagged(json, "ledger/evaluation-leak"), Names({"d"}));
  EXPECT_EQ(Flagged(json, "ledger/not-on-stack"), Names({"a", "b", "c", "d"}));
  EXPECT_EQ(Flagged(json, "ledger/overstated").size(), 1u);
  EXPECT_EQ(Flagged(json, "ledger/scale-bias").size(), 0u);
}

TEST(LedgerCli, Words) {
  const Ended text = RunPlumb({"ledger", kExample});
  EXPECT_EQ(text.status, 1) << "overstated is an error";
  EXPECT_THAT(text.output, HasSubstr("x1.605"));
  EXPECT_THAT(text.output, HasSubstr("[1.451, 1.775]"));
  EXPECT_THAT(text.output, HasSubstr("[1.370, 1.880]"));
  EXPECT_THAT(text.output, HasSubstr("x1.481"));
  EXPECT_THAT(text.output, HasSubstr("It includes the leaked data of d."));
  EXPECT_THAT(text.output, HasSubstr("one more pair of c at 1e+20 FLOPs"));
  EXPECT_THAT(text.output, HasSubstr("d: helps on the evaluation set, but not on another one"));
  EXPECT_THAT(text.output, HasSubstr("8 findings (1 error, 3 warnings, 4 notes)"));
}

TEST(LedgerCli, ExitStatus) {
  const std::string quiet =
      PLUMBLINE_SOURCE_DIR "/tests/rules/ledger/not-on-stack/near-miss-left-out.toml";
  EXPECT_EQ(RunPlumb({"ledger", quiet}).status, 0);
  EXPECT_EQ(RunPlumb({"ledger", quiet, "--fail-on", "note"}).status, 0);
  const std::string note =
      PLUMBLINE_SOURCE_DIR "/tests/rules/ledger/not-on-stack/bad-no-stack.toml";
  EXPECT_EQ(RunPlumb({"ledger", note, "--fail-on", "warning"}).status, 0);
  EXPECT_EQ(RunPlumb({"ledger", note, "--fail-on", "note"}).status, 1);
  EXPECT_EQ(RunPlumb({"ledger", "/none.toml"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger", quiet, "--allow-scale", "-1"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger", quiet, "--fail-on", "never"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger", quiet, "--format", "xml"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger", quiet, "--nonsense"}).status, 2);
  EXPECT_EQ(RunPlumb({"ledger", PLUMBLINE_SOURCE_DIR}).status, 2) << "a directory";
  EXPECT_EQ(RunPlumb({"ledger", "--help"}).status, 0);
}

TEST(LedgerCli, AllowancesWidenAndAreReported) {
  const Json before = Estimated(),
             after = Estimated({"--allow-target", "0.05", "--allow-large", "0.002"});
  const auto width = [](const Json& json) {
    return json["product"]["all"][1].get<double>() - json["product"]["all"][0].get<double>();
  };
  EXPECT_GT(width(after), width(before));
  EXPECT_EQ(after["assumptions"]["target"], 0.05);
  EXPECT_EQ(before["assumptions"]["target"], 0.005);
  const Json none = Estimated(
      {"--allow-scale", "0", "--allow-target", "0", "--allow-small", "0", "--allow-large", "0"});
  EXPECT_LT(width(none), width(before));
}

TEST(LedgerCli, Output) {
  const test::TempFolder dir;
  const std::string file = dir.File("out.json");
  const Ended ended = RunPlumb({"ledger", kExample, "--format", "json", "--output", file});
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(Json::parse(test::ReadFile(file)), Estimated());
  const std::string copy = dir.Write("l.toml", test::ReadFile(kExample));
  EXPECT_EQ(RunPlumb({"ledger", copy, "--output", copy}).status, 2) << "the ledger itself";
  EXPECT_EQ(test::ReadFile(copy), test::ReadFile(kExample));
}

// Names that would control a terminal are escaped, in JSON too.
TEST(LedgerCli, HostileNames) {
  const test::TempFolder dir;
  std::string text = test::ReadFile(kExample);
  for (size_t at = text.find("name = \"b\""); at != std::string::npos;
       at = text.find("name = \"b\"", at))
    text.replace(at, 10, "name = \"\\u001b[2J\\u202e%s\"");
  const std::string file = dir.Write("l.toml", text);
  EXPECT_THAT(RunPlumb({"ledger", file}).output, Not(HasSubstr("\x1b")));
  const Ended json = RunPlumb({"ledger", file, "--format", "json"});
  EXPECT_THAT(json.output, Not(HasSubstr("\x1b")));
  EXPECT_EQ(Json::parse(json.output)["multipliers"][1]["name"], "\x1b[2J\xE2\x80\xAE%s");
}

TEST(LedgerCli, RulesHavePages) {
  for (const char* rule : {"one-seed", "small-scale", "not-on-stack", "open-findings",
                           "evaluation-leak", "overstated", "scale-bias"}) {
    const Ended page = RunPlumb({"explain", std::string("ledger/") + rule});
    EXPECT_EQ(page.status, 0);
    EXPECT_THAT(page.output, HasSubstr("**Why.**"));
  }
}

// The ledger from examples/ledger: the one leak is flagged, and nothing else.
TEST(LedgerCli, TheExampleOfRealRuns) {
  const std::string file = PLUMBLINE_SOURCE_DIR "/examples/ledger/ledger.toml";
  const Ended ended = RunPlumb({"ledger", file, "--format", "json"});
  ASSERT_LE(ended.status, 1) << ended.output;
  const Json json = Json::parse(ended.output);
  EXPECT_EQ(Flagged(json, "ledger/evaluation-leak"), std::vector<std::string>({"more-documents"}));
  EXPECT_EQ(Flagged(json, "ledger/one-seed").size(), 0u);
  EXPECT_EQ(Flagged(json, "ledger/scale-bias").size(), 0u);
}

}  // namespace
}  // namespace plumbline::audit::testing
