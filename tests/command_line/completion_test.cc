// A small program with one of every option type, completed by real shells.
#include "command_line/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "command_line/usage.h"
#include "tests/support/shells.h"

namespace plumbline {
namespace {

using test::BashOffers;
using test::FishOffers;
using test::ZshCompletes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class Completion : public ::testing::Test {
 protected:
  Completion() {
    CLI::App* look = app_.add_subcommand("look", "It's [a] look: \\ and $HOME");
    look->add_option("FILE", files_, "What to look at");
    look->add_option("-f,--format", word_, "One of {two}")->check(OneOf({"text", "json"}));
    look->add_option("--level", word_)->check(OneOf({"low", "high"}).description(""));
    look->add_option("--colour", word_)->check(CLI::IsMember({"red", "green"}));
    look->add_option("--speed", number_)->transform(CLI::CheckedTransformer(speeds_));
    look->add_option("--input", word_)->check(CLI::ExistingFile);
    look->add_option("--into", word_)->type_name("DIR");
    look->add_option("--free", word_, "Anything")->type_name("HOST:PORT");
    look->add_option("--hidden", word_)->group("");
    look->add_flag("--quiet", flag_, "Print little");
    CLI::App* follow = app_.add_subcommand("follow", "Follow it");
    follow->add_option("RUN", word_, "Of any name");
    follow->add_option("--once", flag_)->type_name("TIMES");
    CLI::App* query = app_.add_subcommand("ask", "Ask");
    query->add_option("--format", word_)->check(OneOf({"csv", "xml"}));
    CLI::App* all = query->add_subcommand("everything", "All of it");
    all->add_option("RULE", word_, "A rule")
        ->check(OfferPrinted("cat " + dir_.Write("rules", "a/one  first\nb/two  second\n")));
    all->add_option("--as", word_)->check(Offer({"known", "named"}));
    app_.add_subcommand("secret", "Not shown")->group("");
  }

  std::string Script(const std::string& shell) { return CompletionScript(&app_, shell); }

  const test::TempFolder dir_;
  CLI::App app_{"A program", "prog"};
  std::vector<std::string> files_;
  std::string word_;
  int number_ = 0;
  bool flag_ = false;
  const std::map<std::string, int> speeds_ = {{"fast", 1}, {"slow", 2}};
};

TEST_F(Completion, IsTheSameTwiceAndHidesWhatHelpHides) {
  for (const std::string& shell : CompletionShells()) {
    const std::string script = Script(shell);
    EXPECT_EQ(script, Script(shell));
    EXPECT_THAT(script, HasSubstr("everything"));
    EXPECT_THAT(script, Not(HasSubstr("hidden")));
    EXPECT_THAT(script, Not(HasSubstr("secret")));
  }
}

TEST_F(Completion, BashReadsTheScript) {
  const std::string path = dir_.Write("script", Script("bash"));
  const test::Ended read = test::RunToEnd({"/usr/bin/env", "bash", "-n", path});
  EXPECT_EQ(read.status, 0) << read.errors;
  const auto registered = test::RunToEnd(
      {"/usr/bin/env", "bash", "--norc", "-c", "source " + path + "; complete -p prog"});
  EXPECT_EQ(registered.output, "complete -F _prog prog\n");
}

TEST_F(Completion, Bash) {
  const std::string script = Script("bash");
  const auto offers = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "prog");
    return BashOffers(script, words);
  };
  EXPECT_THAT(offers({""}), ElementsAre("look", "follow", "ask"));
  EXPECT_THAT(offers({"l"}), ElementsAre("look"));
  EXPECT_THAT(offers({"-"}), ElementsAre("-h", "--help"));
  EXPECT_THAT(offers({"look", "--fo"}), ElementsAre("--format"));
  EXPECT_THAT(offers({"look", "--format", ""}), ElementsAre("text", "json"));
  EXPECT_THAT(offers({"look", "-f", "j"}), ElementsAre("json"));
  EXPECT_THAT(offers({"look", "--format", "="}), ElementsAre("text", "json"));
  EXPECT_THAT(offers({"look", "--format", "=", "t"}), ElementsAre("text"));
  EXPECT_THAT(offers({"look", "--level", ""}), ElementsAre("low", "high"));
  EXPECT_THAT(offers({"look", "--colour", ""}), UnorderedElementsAre("red", "green"));
  EXPECT_THAT(offers({"look", "--speed", ""}), ElementsAre("fast", "slow"));
  EXPECT_THAT(offers({"look", "--input", ""}), ElementsAre("default"));
  EXPECT_THAT(offers({"look", "--into", ""}), ElementsAre("dirnames"));
  EXPECT_THAT(offers({"look", "--free", ""}), IsEmpty());
  EXPECT_THAT(offers({"look", ""}), ElementsAre("default"));
  EXPECT_THAT(offers({"look", "--free", "ask", "--quiet", "--level", "h"}), ElementsAre("high"))
      << "an option's value is no subcommand";
  EXPECT_THAT(offers({"look", "--free", "--level", ""}), ElementsAre("default"))
      << "an option's value is no option";
  EXPECT_THAT(offers({"follow", ""}), IsEmpty());
  EXPECT_THAT(offers({"follow", "--o"}), ElementsAre("--once"));
  EXPECT_THAT(offers({"ask", "--format", ""}), ElementsAre("csv", "xml"));
  EXPECT_THAT(offers({"ask", "--format", "csv", ""}), ElementsAre("everything"));
  EXPECT_THAT(offers({"ask", "everything", ""}), ElementsAre("a/one", "b/two"));
  EXPECT_THAT(offers({"ask", "everything", "--as", ""}), ElementsAre("known", "named"));
}

TEST_F(Completion, Zsh) {
  ASSERT_TRUE(test::HasShell("zsh")) << "tools/setup installs zsh";
  const std::string script = Script("zsh");
  const std::pair<const char*, const char*> cases[] = {
      {"prog l", "prog look "},
      {"prog look --fo", "prog look --format="},
      {"prog look --format ", "prog look --format json text "},
      {"prog look --format=j", "prog look --format=json "},
      {"prog look -f j", "prog look -f json "},
      {"prog look --into d", "prog look --into d"},
      {"prog look scr", "prog look script "},
      {"prog look --speed f", "prog look --speed fast "},
      {"prog follow ", "prog follow "},
      {"prog follow --o", "prog follow --once="},
      {"prog ask e", "prog ask everything "},
      {"prog ask --format csv e", "prog ask --format csv everything "},
      {"prog ask everything ", "prog ask everything a/one b/two "},
      {"prog ask everything --as k", "prog ask everything --as known "},
  };
  std::vector<std::string> lines, expected;
  for (const auto& [line, completed] : cases) {
    lines.emplace_back(line);
    expected.emplace_back(completed);
  }
  EXPECT_EQ(ZshCompletes(script, lines), expected);
}

TEST_F(Completion, Fish) {
  ASSERT_TRUE(test::HasShell("fish")) << "tools/setup installs fish";
  const std::string script = Script("fish");
  const auto offers = [&](const char* line) { return FishOffers(script, line); };
  EXPECT_THAT(offers("prog "), UnorderedElementsAre("look", "follow", "ask"));
  EXPECT_THAT(offers("prog look --fo"), ElementsAre("--format"));
  EXPECT_THAT(offers("prog look --format "), UnorderedElementsAre("text", "json"));
  EXPECT_THAT(offers("prog look --format=j"), ElementsAre("--format=json"));
  EXPECT_THAT(offers("prog look -f t"), ElementsAre("text"));
  EXPECT_THAT(offers("prog look --speed "), UnorderedElementsAre("fast", "slow"));
  EXPECT_THAT(offers("prog look te"), ElementsAre("test"));
  EXPECT_THAT(offers("prog look --input te"), ElementsAre("test"));
  EXPECT_THAT(offers("prog look --into te"), IsEmpty());
  EXPECT_THAT(offers("prog look --free ask --level h"), ElementsAre("high"));
  EXPECT_THAT(offers("prog follow --o"), ElementsAre("--once"));
  EXPECT_THAT(offers("prog ask --format csv "), ElementsAre("everything"));
  EXPECT_THAT(offers("prog ask everything "), UnorderedElementsAre("a/one", "b/two"));
  EXPECT_THAT(offers("prog ask everything --as "), UnorderedElementsAre("known", "named"));
}

// Checks that offer words also accept others.
TEST_F(Completion, OffersAreNoLimits) {
  app_.parse("ask everything c/three --as other");
  EXPECT_EQ(word_, "other");
}

}  // namespace
}  // namespace plumbline
