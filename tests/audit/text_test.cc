// Texts for people: nothing in them can control a terminal, numbers are exact or short, lines fit.
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "audit/render/text_report.h"
#include "rules/words/false_alarm.h"

namespace plumbline::audit {
namespace {

TEST(Printable, EscapesWhatSteersATerminal) {
  EXPECT_EQ(Printable("plain \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "plain \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(Printable("a\x1b[31mb\n\t\r"), "a\\x1b[31mb\\n\\t\\r");
  EXPECT_EQ(Printable("\xC2\x9B"), "\\x9b") << "C1 control sequence introducer";
  EXPECT_EQ(Printable("\xE2\x80\xAE"), "\\u202e") << "right-to-left override";
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(Printable("\xFF"), "\\xff");
  EXPECT_EQ(Printable("\xC0\xAF"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
  EXPECT_EQ(Printable("\xE2\x82"), "\\xe2\\x82") << "cut";
  EXPECT_EQ(ValidUtf8("a\n\xFF"), "a\n\\xff");
}

v1::Verdict Reported(v1::Verdict::Kind kind, const std::string& rule, const std::string& reason,
                     const std::string& layer) {
  v1::Verdict verdict;
  verdict.set_kind(kind);
  verdict.set_rule(rule);
  verdict.set_reason(reason);
  verdict.mutable_site()->set_layer(layer);
  return verdict;
}

// A healthy run that has only begun: verdicts that are not yet possible take one line, after the
// passes.
TEST(TextReport, ManyInconclusiveReasonsAreCounted) {
  AuditResult result;
  result.coverage.judged = 1;
  result.coverage.inconclusive = 5;
  result.report.Add(Reported(v1::Verdict::KIND_PASS, "a/good", "well", "x"));
  for (const char* rule : {"a/one", "a/two", "b/three"})
    result.report.Add(Reported(v1::Verdict::KIND_INCONCLUSIVE, rule, "few-steps: long words", "x"));
  result.report.Add(Reported(v1::Verdict::KIND_INCONCLUSIVE, "b/four", "no-rate: none", "x"));
  result.report.Add(Reported(v1::Verdict::KIND_INCONCLUSIVE, "b/four", "no-rate: none", "y"));
  EXPECT_EQ(RenderText(result, {}).find("a/good"), std::string::npos) << "only with -v";
  EXPECT_TRUE(
      RenderText(result, {})
          .ends_with(
              "0 findings; 1 of 5 rules judged; not judged: a/one, a/two, b/four, b/three\n"));
  TextStyle verbose;
  verbose.verbose = true;
  const std::string text = RenderText(result, verbose);
  EXPECT_NE(
      text.find(
          "  5 verdicts are inconclusive: few steps (3), no rate (2). --format json lists each"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("long words"), std::string::npos);
  EXPECT_LT(text.find("a/good"), text.find("5 verdicts are inconclusive"));
  // Every number of verdicts in the report is that of the coverage.
  result.coverage.inconclusive = 9;
  EXPECT_NE(RenderText(result, verbose).find("  9 verdicts are inconclusive, at 5 places: few"),
            std::string::npos);
  result.coverage.judged = 0;  // then the reasons are shown
  EXPECT_NE(RenderText(result, {}).find("long words"), std::string::npos);
}

TEST(TextReport, PathsThatLeadNowhereAreAllThatIsStated) {
  AuditResult result;
  result.nothing_there = true;
  result.judged_any = false;
  v1::Verdict verdict = Reported(v1::Verdict::KIND_FINDING, "meta/probe-coverage", "", "");
  verdict.mutable_finding()->set_rule("meta/probe-coverage");
  verdict.mutable_finding()->set_fingerprint("f");
  result.report.Add(verdict);
  EXPECT_EQ(RenderText(result, {}), "0 judged, 0 inconclusive\n");
}

TEST(Numbers, ExactReadsBackAndShortIsShort) {
  EXPECT_EQ(ExactNumber(0.1), "0.1");
  EXPECT_EQ(ExactNumber(3), "3");
  EXPECT_EQ(std::stod(ExactNumber(1.0 / 3)), 1.0 / 3);
  EXPECT_EQ(ExactNumber(std::nan("")), "nan");
  EXPECT_EQ(ExactNumber(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(ShortNumber(1.0 / 3), "0.333333");
  EXPECT_EQ(ShortNumber(123456789), "123456789");
}

TEST(Ranges, MergeAndAreLimited) {
  EXPECT_EQ(Ranges({3, 0, 1, 2, 7, 2}), "0-3, 7");
  EXPECT_EQ(Ranges({}), "");
  EXPECT_EQ(Ranges({0, 2, 4, 6}, 2), "0, 2 and 2 more");
}

TEST(Wrap, KeepsWordsAndWidth) {
  const auto lines = Wrap("one two three four", 9);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "one two");
  EXPECT_EQ(lines[2], "four");
  EXPECT_EQ(Wrap("averyveryverylongword x", 5).front(), "averyveryverylongword");
}

// Colour on a terminal, not in a file, not with NO_COLOR, not on a dumb terminal.
TEST(Style, FollowsTheTerminalAndNoColor) {
  int master = -1, terminal = -1;
  winsize size{};
  size.ws_col = 72;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, &size), 0);
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(StyleFor(terminal).colour);
  EXPECT_EQ(StyleFor(terminal).width, 72);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(StyleFor(terminal).colour);
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(StyleFor(terminal).colour) << "set but empty does not count (no-color.org)";
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(StyleFor(terminal).colour);
  setenv("TERM", "xterm", 1);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_FALSE(StyleFor(pipes[1]).colour);
  for (const int fd : {master, terminal, pipes[0], pipes[1]}) close(fd);
}

v1::Finding Hostile() {
  v1::Finding finding;
  finding.set_rule("causality/moe-future-leak");
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_strength(v1::STRENGTH_PROVED);
  finding.set_title("a \x1b]0;title\x07 \xFF");
  finding.mutable_site()->set_run("run\x1b[2J");
  finding.mutable_site()->set_layer("layers.3");
  finding.mutable_site()->set_op("routing");
  finding.mutable_site()->set_step_first(3);
  finding.mutable_site()->set_step_last(9);
  finding.mutable_site()->add_ranks(0);
  finding.mutable_site()->add_ranks(1);
  finding.mutable_measured()->set_name("inversions");
  finding.mutable_measured()->set_value(std::nan(""));
  finding.mutable_threshold()->set_value(std::numeric_limits<double>::infinity());
  finding.add_assumptions("as\x1bsumed");
  (*finding.mutable_witness()->mutable_fields())["text"].set_string_value("token 17 \x1b lost");
  (*finding.mutable_details()->mutable_fields())["b"].set_number_value(
      -std::numeric_limits<double>::infinity());
  (*finding.mutable_details()->mutable_fields())["a"].set_number_value(0.25);
  finding.set_fingerprint("00112233445566778899aabbccddeeff");
  return finding;
}

TEST(Finding, TextHasNoControlCharacters) {
  const std::string text = RenderFinding(Hostile(), TextStyle{});
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << text;
  EXPECT_NE(text.find("layers.3 routing, steps 3-9, ranks 0-1"), std::string::npos) << text;
  EXPECT_NE(text.find("token 17 \\x1b lost"), std::string::npos) << text;
  EXPECT_NE(text.find("00112233445566778899aabbccddeeff"), std::string::npos) << text;
}

// The sentence of a forecast has its numbers and units; without it the fields are listed.
TEST(Finding, AForecastReadsAsASentence) {
  v1::Finding finding;
  auto& fields = *finding.mutable_forecast()->mutable_fields();
  fields["steps"].set_number_value(10000);
  fields["settles_at"].set_number_value(-20);
  fields["unit"].set_string_value("ulp");
  EXPECT_NE(RenderFinding(finding, {.verbose = true})
                .find("  forecast   settles at -20, steps 10000, unit ulp\n"),
            std::string::npos);
  fields["words"].set_string_value("10,000 steps add up to -2,000 ulp");
  const std::string text = RenderFinding(finding, {.verbose = true});
  EXPECT_NE(text.find("  forecast   10,000 steps add up to -2,000 ulp\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("settles at"), std::string::npos) << text;
  EXPECT_NE(FindingJson(finding).find("\"settles_at\":-20"), std::string::npos);
}

TEST(Finding, WhatToDoFirstStandsAboveAndArraysToBeDrawnAreLeftOut) {
  v1::Finding finding = Hostile();
  finding.set_fix(
      "Drop by position (Megatron-LM: --moe-token-drop-policy position), or not at all.");
  auto& witness = *finding.mutable_witness()->mutable_fields();
  witness.erase("text");
  witness["expert"].set_number_value(3);
  auto& row = (*witness["queue"].mutable_struct_value()->mutable_fields())["row"];
  for (int i = 0; i < 150; ++i) row.mutable_list_value()->add_values()->set_number_value(i);
  const std::string text = RenderFinding(finding, {});
  EXPECT_NE(text.find("  do first   Drop by position, or not at all.\n"
                      "  command    --moe-token-drop-policy position\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  witness    expert 3\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("queue"), std::string::npos) << text;
  const auto json = FindingValue(finding);
  EXPECT_EQ(json["act"], "Drop by position, or not at all.");
  EXPECT_EQ(json["command"], "--moe-token-drop-policy position");
  EXPECT_EQ(json["fixes"][0]["label"], "Megatron-LM");
  EXPECT_EQ(json["witness"]["queue"]["row"].size(), 150u);
  finding.set_fix("Repair it.");  // no word is repeated
  EXPECT_EQ(RenderFinding(finding, {.verbose = true}).find("  fix "), std::string::npos);
}

// The short form has at most 8 lines, however long the texts are, and names its incident's sites.
TEST(Finding, TheShortFormHasAtMostEightLines) {
  v1::Finding finding = Hostile();
  std::string sentences;
  for (int i = 0; i < 30; ++i) sentences += "Sentence " + std::to_string(i) + " has the numbers. ";
  IncidentSites sites{40, {}, "ffeeddccbbaa99887766554433221100"};
  for (int i = 0; i < 16; ++i) sites.named.push_back("layers." + std::to_string(i) + " routing");
  for (const char* fix :
       {"", "Fix it.", "Set `--first-flag 1`, then read the long page of the rule."}) {
    for (const std::string& why : {std::string(), sentences, std::string(3000, 'x')}) {
      finding.set_fix(fix);
      finding.set_explanation(why);
      for (const int width : {40, 72, 100}) {
        const std::string text = RenderIncident(finding, sites, {.width = width});
        if (width == 100) EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 8) << text;
        EXPECT_NE(text.find("ffeeddccbbaa99887766554433221100"), std::string::npos) << text;
        EXPECT_NE(text.find("proved"), std::string::npos) << text;
      }
    }
  }
  finding.set_explanation(sentences);
  const std::string text = RenderFinding(finding, {});
  EXPECT_NE(text.find("Sentence 0 has the numbers."), std::string::npos) << text;
  EXPECT_EQ(text.find("..."), std::string::npos) << "cut at the end of a sentence";
  EXPECT_NE(RenderFinding(finding, {.verbose = true}).find("Sentence 29"), std::string::npos);
}

// A false-alarm rate has its unit.
TEST(Finding, TheRateOfFalseAlarmsHasItsUnit) {
  v1::Finding finding;
  finding.set_rule("health/loss-spike");
  finding.set_strength(v1::STRENGTH_STATISTICAL);
  const auto rate = [&](const char* kind, double value) {
    finding.mutable_false_alarm()->set_kind(kind);
    finding.mutable_false_alarm()->set_value(value);
    return rules::FalseAlarmText(finding);
  };
  EXPECT_EQ(rules::FalseAlarmText(finding), "");
  EXPECT_EQ(rate("measured", 1.2e-6), "about 1 false alarm in 830,000 points, measured");
  EXPECT_EQ(rate("measured", 2e-4), "about 1 false alarm in 5,000 runs, measured");
  EXPECT_EQ(rate("probability", 1e-6), "at most 1 false alarm in 1,000,000 runs");
  EXPECT_EQ(rate("probability", 0x1p-64), "at most 1 false alarm in 1.8e+19 runs");
  EXPECT_EQ(rate("run-length", 1e6), "about 1 false alarm in 1,000,000 healthy steps");
  finding.set_rule("performance/straggler");
  EXPECT_EQ(rate("measured", 0.013), "about 1 false alarm in 77 jobs, measured");
  EXPECT_EQ(rules::HowSureText(finding), "statistical: about 1 false alarm in 77 jobs, measured");
}

TEST(Reasons, ACodeIsNotShownInText) {
  EXPECT_EQ(rules::ReasonSentence("few-steps: 3 steps; the rule needs 10"),
            "3 steps; the rule needs 10");
  EXPECT_EQ(rules::ReasonSentence("the loss is at its minimum: it may stay"),
            "the loss is at its minimum: it may stay");
  EXPECT_EQ(rules::ReasonSentence("few-steps"), "few-steps");
  EXPECT_EQ(rules::ReasonSentence("few-steps:"), "few-steps");
  EXPECT_EQ(rules::ReasonName("few-steps: 3 steps"), "few steps");
  EXPECT_EQ(rules::ReasonName("poisoned: NaN"), "NaN or infinite values");
}

TEST(Finding, ColourOnlyWhenRequested) {
  TextStyle style;
  style.colour = true;
  EXPECT_NE(RenderFinding(Hostile(), style).find("\x1b[1;31merror\x1b[0m"), std::string::npos);
}

TEST(Finding, JsonIsStrictAndOrdered) {
  const std::string json = FindingJson(Hostile());
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_NE(json.find("\"value\":\"nan\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"details\":{\"a\":0.25,\"b\":\"-inf\"}"), std::string::npos) << json;
  EXPECT_NE(json.find("\\\\xff"), std::string::npos) << json;
  EXPECT_EQ(json.find("\"bias\""), std::string::npos);
  EXPECT_EQ(json.find("\"false_alarm\""), std::string::npos);
}

}  // namespace
}  // namespace plumbline::audit
