// plumb completion: what a user's shell offers after plumb.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/audit/plumb_process.h"
#include "tests/support/shells.h"

namespace plumbline::audit::testing {
namespace {

using test::BashOffers;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

TEST(PlumbCompletion, Bash) {
  const std::string script = RunPlumb({"completion", "bash"}).output;
  EXPECT_THAT(BashOffers(script, {"plumb", "au"}), ElementsAre("audit"));
  EXPECT_THAT(BashOffers(script, {"plumb", "audit", "--for"}), ElementsAre("--format"));
  EXPECT_THAT(BashOffers(script, {"plumb", "audit", "--format", ""}),
              IsSupersetOf({"text", "json"}));
  EXPECT_THAT(BashOffers(script, {"plumb", "audit", "--as", "run"}), ElementsAre("run-record"));
  EXPECT_THAT(BashOffers(script, {"plumb", "audit", "--output", ""}), ElementsAre("default"));
  EXPECT_THAT(BashOffers(script, {"plumb", "audit", ""}), ElementsAre("default"));
  EXPECT_THAT(BashOffers(script, {"plumb", "watch", "--level", "w"}), ElementsAre("warning"));
  EXPECT_THAT(BashOffers(script, {"plumb", "capsule", "x", "--output", ""}),
              ElementsAre("dirnames"));
  EXPECT_THAT(BashOffers(script, {"plumb", "query", "ser"}), ElementsAre("series"));
  EXPECT_THAT(BashOffers(script, {"plumb", "query", "series", "--role", ""}),
              ElementsAre("trainer", "rollout"));
  EXPECT_THAT(BashOffers(script, {"plumb", "completion", "f"}), ElementsAre("fish"));
}

// The script runs the plumb on the PATH.
TEST(PlumbCompletion, RulesAreRequested) {
  const std::string programs =
      std::string(PLUMB_PROGRAM).substr(0, std::string(PLUMB_PROGRAM).rfind('/'));
  const std::string script =
      "PATH=" + programs + ":$PATH\n" + RunPlumb({"completion", "bash"}).output;
  for (const std::vector<std::string>& before :
       {std::vector<std::string>{"plumb", "explain"}, {"plumb", "audit", "--rules"}}) {
    std::vector<std::string> words = before;
    words.emplace_back("causality/moe-future");
    EXPECT_THAT(BashOffers(script, words), ElementsAre("causality/moe-future-leak"));
  }
}

TEST(PlumbCompletion, IsTheSameTwiceAndHidesNothingElse) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Ended once = RunPlumb({"completion", shell});
    EXPECT_EQ(once.status, 0);
    EXPECT_EQ(once.errors, "");
    EXPECT_EQ(once.output, RunPlumb({"completion", shell}).output);
    EXPECT_THAT(once.output, AllOf(HasSubstr("fail-on"), Not(HasSubstr("write-docs"))));
  }
}

TEST(PlumbCompletion, Zsh) {
  ASSERT_TRUE(test::HasShell("zsh")) << "tools/setup installs zsh";
  const std::string script = RunPlumb({"completion", "zsh"}).output;
  EXPECT_THAT(test::ZshCompletes(script, {"plumb au", "plumb query series --ro"}),
              ElementsAre("plumb audit ", "plumb query series --role="));
}

TEST(PlumbCompletion, Fish) {
  ASSERT_TRUE(test::HasShell("fish")) << "tools/setup installs fish";
  const std::string script = RunPlumb({"completion", "fish"}).output;
  EXPECT_THAT(test::FishOffers(script, "plumb au"), ElementsAre("audit"));
  EXPECT_THAT(test::FishOffers(script, "plumb audit --format "), IsSupersetOf({"text", "json"}));
}

TEST(PlumbCompletion, OtherShellsAreRefused) {
  const Ended other = RunPlumb({"completion", "fsh"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("expected bash, zsh or fish, found \"fsh\"; did you mean"));
}

// help2man separates an option from its explanation at two spaces. A longer option is on its own
// line.
void ExpectAPage(std::vector<std::string> words) {
  const std::string column(31, ' ');
  std::string usage = "\nUsage: plumb ";
  for (const std::string& word : words) usage += word + " ";
  words.emplace_back("--help");
  const std::string help = RunPlumb(words).output;
  EXPECT_THAT(help, HasSubstr(usage));
  const std::vector<std::string> lines = test::LinesOf(help);
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const bool alone = lines[i + 1].rfind(column, 0) == 0;
    if (lines[i].rfind("  -", 0) != 0 || alone) continue;
    EXPECT_EQ(lines[i].substr(column.size() - 2, 2), "  ") << usage << lines[i];
  }
}

TEST(PlumbHelp, MakesManualPages) {
  for (const char* command :
       {"audit", "rules", "explain", "fingerprint", "mcp", "watch", "runs", "capsule", "doctor"})
    ExpectAPage({command});
  for (const char* command : {"incidents", "history", "incident", "series", "verdicts", "info"})
    ExpectAPage({"query", command});
  for (const char* command : {"list", "send"}) ExpectAPage({"spool", command});
}

}  // namespace
}  // namespace plumbline::audit::testing
