// The program as a user runs it: exit statuses, formats, options, wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "base/framed_log.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/record_builder.h"
#include "tests/audit/report_check.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Cli : public ::testing::Test {
 protected:
  const TempFolder dir_;
  const std::string leaky_ = dir_.Write("leaky.safetensors", LeakyDump().File());
  const std::string clean_ = dir_.Write("clean.safetensors", DroplessDump().File());
  const std::string cut_ = dir_.Write("cut.safetensors", LeakyDump().File().substr(0, 900));

  std::string InconclusiveFile() const {
    Dump dump = DroplessDump();
    dump.metadata["capacity"] = "100000";
    return dir_.Write("inconclusive.safetensors", dump.File());
  }
};

std::string LastLine(const std::string& text) {
  const size_t end = text.size() - 1;
  return text.substr(text.rfind('\n', end - 1) + 1, end - text.rfind('\n', end - 1) - 1);
}

// A suppressed finding is judged, counted and shown, and does not fail the audit; a wrong entry is
// a usage error.
TEST_F(Cli, Suppressions) {
  const auto file = [&](const char* name, const std::string& keys) {
    return dir_.Write(name, "[[suppress]]\n" + keys + "reason = \"known\"\n");
  };
  const std::string known = file("known.toml", "rule = \"causality/*\"\nexpires = 2999-01-01\n");
  const auto hidden = RunPlumb({"audit", leaky_, "--suppressions", known});
  EXPECT_EQ(hidden.status, 0) << hidden.output;
  EXPECT_THAT(hidden.output, HasSubstr("(suppressed)"));
  EXPECT_THAT(LastLine(hidden.output), HasSubstr(" suppressed"));
  const std::string old = file("old.toml", "rule = \"causality/*\"\nexpires = 2020-01-01\n");
  const auto expired = RunPlumb({"audit", leaky_, "--suppressions", old});
  EXPECT_EQ(expired.status, 1);
  EXPECT_THAT(expired.output, HasSubstr("meta/unused-suppression"));
  EXPECT_EQ(RunPlumb({"audit", clean_, "--suppressions", known, "--fail-on", "warning"}).status, 1)
      << "it matched nothing";
  const auto wrong = RunPlumb({"audit", leaky_, "--suppressions", file("wrong.toml", "rul = 1\n")});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.errors, HasSubstr("wrong.toml:2: unknown key \"rul\""));
  EXPECT_EQ(RunPlumb({"audit", leaky_, "--suppressions", dir_.File("none.toml")}).status, 2);
  // A device has no end; a file that a person writes ends within 64 MiB.
  for (const char* option : {"--suppressions", "--contract", "--map"}) {
    const auto endless = RunPlumb({"audit", leaky_, option, "/dev/zero"});
    EXPECT_EQ(endless.status, 2) << option;
    EXPECT_THAT(endless.errors, HasSubstr("/dev/zero: ")) << option;
  }
}

TEST_F(Cli, ExitStatuses) {
  EXPECT_EQ(RunPlumb({"audit", clean_}).status, 0);
  EXPECT_EQ(RunPlumb({"audit", leaky_}).status, 1);
  EXPECT_EQ(RunPlumb({"audit", cut_}).status, 2);
  EXPECT_EQ(RunPlumb({"audit", leaky_, cut_}).status, 2) << "2 outranks 1";
  EXPECT_EQ(RunPlumb({"audit", "/nonexistent/file"}).status, 2);
  EXPECT_EQ(RunPlumb({"audit", "/dev/null"}).status, 2);
  EXPECT_EQ(RunPlumb({"audit", InconclusiveFile()}).status, 0);
}

// If any input could not be read, a missing verdict is a finding, and the problem is also shown in
// the report itself.
TEST_F(Cli, NoVerdictIsAFindingWhateverCouldNotBeRead) {
  const std::string empty = dir_.Write("empty.safetensors", "");
  const std::string other = dir_.Write("notes.txt", "nothing of ours");
  for (const std::string& path : {std::string("/nonexistent/a"), std::string("/dev/null"), empty,
                                  other, dir_.Write("sub/empty.jsonl", "")}) {
    const Ended json = RunPlumb({"audit", path, "--format", "json"});
    EXPECT_EQ(json.status, 2) << path;
    EXPECT_THAT(json.errors, StartsWith("plumb: " + path + ": expected ")) << path;
    const auto report = CheckReport(json.output);
    EXPECT_EQ(report["inputs"][0]["problems"].size(), 1u);
    ASSERT_EQ(report["findings"].size(), 1u) << path;
    EXPECT_EQ(report["findings"][0]["rule"], "meta/probe-coverage");
    EXPECT_EQ(report["findings"][0]["level"], "error");
    EXPECT_EQ(report["findings"][0]["cause"]["id"], "no-verdict");
  }
  const Ended two = RunPlumb({"audit", "/nonexistent/a", "/nonexistent/b"});
  EXPECT_EQ(two.status, 2);
  const std::string why = ": no such file or directory\n";
  EXPECT_EQ(two.errors, "plumb: /nonexistent/a" + why + "plumb: /nonexistent/b" + why);
  // Each path is one line once; the report for programs keeps its fields.
  EXPECT_EQ(two.output, "");
  const test::TempFolder folder;
  test::WriteFile(folder.File("train.jsonl"), "{}");
  EXPECT_THAT(RunPlumb({"audit", folder.File("trian.jsonl")}).errors,
              HasSubstr("no such file or directory; did you mean \"train.jsonl\"?"));
}

// help2man makes sections of a manual page from them.
TEST_F(Cli, HelpNamesExitStatusesAndExamples) {
  const std::string all = RunPlumb({"--help"}).output;
  EXPECT_THAT(all, HasSubstr("\nExit status:\n  0  "));
  std::istringstream lines(all.substr(all.find("Subcommands:\n")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch command;  // the same expression as in packaging/bundle/manuals.py
    if (!std::regex_search(line, command, std::regex("^  ([a-z][a-z-]*) +[^ ]"))) continue;
    ++commands;
    const std::string help = RunPlumb({command[1], "--help"}).output;
    EXPECT_THAT(help, HasSubstr("\nExit status:\n  0  ")) << command[1];
    EXPECT_THAT(help, HasSubstr("\nExamples:\n    ")) << command[1];
  }
  EXPECT_GE(commands, 11);
}

TEST_F(Cli, AnEmptyDirectoryIsNoPass) {
  const std::string folder =
      std::filesystem::path(dir_.Write("foreign/notes.txt", "x")).parent_path();
  const Ended foreign = RunPlumb({"audit", folder, "--format", "json"});
  EXPECT_EQ(foreign.status, 2) << "a foreign file in a directory is no problem; no verdict is one";
  EXPECT_EQ(foreign.errors,
            "plumb: nothing was judged: 1 file with an unknown format: " + folder + "/notes.txt\n");
  const auto report = CheckReport(foreign.output);
  EXPECT_EQ(report["inputs"][0]["format"], "unknown");
  EXPECT_TRUE(report["inputs"][0]["problems"].empty());
  EXPECT_EQ(report["findings"][0]["rule"], "meta/probe-coverage");
}

// The spool of an agent with a server and a record when no server answered.
TEST_F(Cli, ASpoolIsNamedWithTheCommandThatDeliversIt) {
  const std::string header = "\x0a\x11plumbline.spool/1";  // the first field of a v1::SpoolHeader
  const std::string segment =
      dir_.Write("kept/spool/trainer-r0-1/1.pls",
                 FramesFile({{static_cast<int>(FrameType::kSpoolHeader), header}}));
  dir_.Write("kept/spool/trainer-r0-1/lock", "");
  const std::string spool = std::filesystem::path(segment).parent_path().parent_path();
  const std::string folder = std::filesystem::path(spool).parent_path();
  const std::string note = "plumb spool send " + spool;
  const Ended alone = RunPlumb({"audit", spool});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.output, HasSubstr("this is a spool for a server; an audit reads a run record"));
  dir_.Write("kept/clean.safetensors", DroplessDump().File());
  const Ended adjacent = RunPlumb({"audit", folder});
  EXPECT_EQ(adjacent.status, 0);
  const std::string shown = std::regex_replace(adjacent.output, std::regex("\\s+"), " ");
  EXPECT_THAT(shown, HasSubstr(note));
  EXPECT_THAT(shown, Not(HasSubstr("an unknown format")));
  // Files with these names that are not a spool are counted as before.
  dir_.Write("other/lock", "");
  const std::string other = dir_.Write("other/1.pls", "something else");
  EXPECT_THAT(RunPlumb({"audit", std::filesystem::path(other).parent_path()}).output,
              HasSubstr("2 files have an unknown format"));
}

TEST_F(Cli, AMissingInputNextToAReadableOneIsStated) {
  const Ended result = RunPlumb({"audit", clean_, "/nonexistent/a"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, StartsWith("plumb: /nonexistent/a: expected a readable file"));
  EXPECT_THAT(result.output, HasSubstr("refused  /nonexist"));
  EXPECT_THAT(result.output, Not(HasSubstr("meta/probe-coverage")));
}

TEST_F(Cli, WhatIsPackedIsToBeUnpacked) {
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  const std::pair<std::string, const char*> cases[] = {
      {tar, "unpack it with tar -xf FILE, then audit its contents"},
      {std::string("\x28\xb5\x2f\xfd", 4) + tar, "unpack it with tar -xf FILE (a tar) or unzstd"},
      {"BZh91AY", "bunzip2"}};
  for (const auto& [bytes, stated] : cases) {
    const Ended result = RunPlumb({"audit", dir_.Write("runs.packed", bytes)});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(stated));
  }
}

TEST_F(Cli, WhatCouldBeReadIsReportedNextToTheProblem) {
  const Ended result = RunPlumb({"audit", leaky_, cut_, "--format", "json"});
  const auto report = CheckReport(result.output);
  EXPECT_FALSE(report["findings"].empty());
  EXPECT_THAT(report["inputs"][1]["problems"][0].get<std::string>(), StartsWith(cut_ + ": byte "));
}

TEST_F(Cli, FailOn) {
  // moe-batch-dependence is a warning here, moe-future-leak an error.
  const std::vector<std::string> warning = {"audit", leaky_, "--rules",
                                            "causality/moe-batch-dependence"};
  auto with = [&](const char* level) {
    auto arguments = warning;
    arguments.insert(arguments.end(), {"--fail-on", level});
    return RunPlumb(arguments);
  };
  ASSERT_THAT(with("error").output, HasSubstr("warning  causality/moe-batch-dependence"));
  EXPECT_EQ(with("error").status, 0);
  EXPECT_EQ(with("warning").status, 1);
  EXPECT_EQ(with("note").status, 1);
}

// python train.py 2>&1 | plumb audit -
TEST_F(Cli, StandardInput) {
  const std::string log = dir_.Write("piped.txt", "step 1: loss 2.5\nstep 2: loss nan\n");
  const std::string command =
      std::string(PLUMB_PROGRAM) + " audit - --format json --quiet < " + log + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (char c; std::fread(&c, 1, 1, pipe) == 1;) output += c;
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 1);
  const auto report = CheckReport(output);
  EXPECT_EQ(report["inputs"][0]["path"], "standard input");
  EXPECT_EQ(report["findings"][0]["site"]["step_first"], 2);
  const Ended followed = RunPlumb({"audit", "-", "--follow"});
  EXPECT_EQ(followed.status, 2);
  EXPECT_THAT(followed.errors, HasSubstr("expected a file, found -"));
}

// A file that no reader accepts is named, with the command that works.
TEST_F(Cli, RefusalsNameTheWay) {
  const std::pair<std::string, const char*> cases[] = {
      {"Nothing here 5\n", "the first line with a number is \"Nothing here 5\""},
      {"<!DOCTYPE html><html></html>", "a web page: export the run's data"},
      {"PAR1xxxx", "a Parquet file: write it as CSV"},
      {std::string("SQLite format 3\0", 16), "an SQLite database of an unknown tracker"}};
  for (const auto& [bytes, stated] : cases) {
    const Ended result = RunPlumb({"audit", dir_.Write("some.file", bytes)});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(stated));
  }
  dir_.Write("folder/metrics.csv", "step,loss\n1,2.5\n2,2.25\n");
  dir_.Write("folder/other.log", "nothing of 5 lines\n");
  const Ended folder = RunPlumb({"audit", dir_.File("folder")});
  EXPECT_EQ(folder.status, 0);
  EXPECT_THAT(folder.output, HasSubstr("1 file looks like a log and was not read"));
}

// Only a rate is judged: the last line states that no loss was.
TEST_F(Cli, AMissingLossIsStated) {
  std::string unknown = "step,learning_rate,quux\n", known = "step,learning_rate,loss\n";
  for (int i = 1; i <= 100; ++i) {
    const std::string row = std::to_string(i) + ",0.0003," + std::to_string(2 + 1.0 / i) + "\n";
    unknown += row;
    known += row;
  }
  EXPECT_THAT(LastLine(RunPlumb({"audit", dir_.Write("unknown.csv", unknown)}).output),
              HasSubstr("; no series was recognised as a loss"));
  EXPECT_THAT(LastLine(RunPlumb({"audit", dir_.Write("known.csv", known)}).output),
              Not(HasSubstr("no series was recognised")));
}

TEST_F(Cli, TextStatesWhatMatters) {
  const Ended result = RunPlumb({"audit", leaky_});
  const Ended full = RunPlumb({"audit", leaky_, "-v"});
  for (const char* part : {"error  causality/moe-future-leak", "layers.3 routing", "run demo",
                           "do first   Drop by position", "how sure   proved"}) {
    EXPECT_THAT(result.output, HasSubstr(part));
    EXPECT_THAT(full.output, HasSubstr(part));
  }
  for (const char* part : {"witness    ", "measured   ", "fix        "})
    EXPECT_THAT(full.output, HasSubstr(part)) << "the brief form has it if it fits";
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b"))) << "no colour off a terminal";
  EXPECT_THAT(
      LastLine(result.output),
      ::testing::MatchesRegex("[0-9]+ findings? \\(1 error.*\\); [0-9]+ of [0-9]+ rules judged.*"));
  EXPECT_EQ(result.errors, "");
}

TEST_F(Cli, AllInconclusiveIsStated) {
  const Ended result = RunPlumb({"audit", InconclusiveFile(), "--rules", "causality/*"});
  EXPECT_THAT(LastLine(result.output),
              ::testing::MatchesRegex("0 judged, [1-9][0-9]* inconclusive"));
}

TEST_F(Cli, NoVerdictAtAllIsAFinding) {
  std::filesystem::create_directory(dir_.File("empty"));
  const Ended text = RunPlumb({"audit", dir_.File("empty")});
  EXPECT_EQ(text.status, 2);
  EXPECT_EQ(text.output, "nothing was judged: the folder contains no file\n");
  EXPECT_EQ(text.errors, "");
  const Ended result = RunPlumb({"audit", dir_.File("empty"), "--format", "json"});
  EXPECT_EQ(result.status, 2);
  const auto report = CheckReport(result.output);
  ASSERT_EQ(report["findings"].size(), 1u);
  EXPECT_EQ(report["findings"][0]["rule"], "meta/probe-coverage");
  EXPECT_EQ(report["findings"][0]["level"], "error");
}

TEST_F(Cli, JsonIsTheContractsAndTheSameTwice) {
  for (const std::string& path : {leaky_, clean_, cut_, InconclusiveFile(), dir_.path()}) {
    SCOPED_TRACE(path);
    const Ended first = RunPlumb({"audit", path, "--format", "json"});
    CheckReport(first.output);
    EXPECT_EQ(first.output, RunPlumb({"audit", path, "--format=json"}).output);
  }
}

TEST_F(Cli, TextIsTheSameTwice) {
  EXPECT_EQ(RunPlumb({"audit", dir_.path()}).output, RunPlumb({"audit", dir_.path()}).output);
}

TEST_F(Cli, OutputGoesToAFile) {
  const std::string out = dir_.File("report.json");
  const Ended result = RunPlumb({"audit", leaky_, "--format", "json", "--output", out});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.output, "");
  CheckReport(ReadFile(out));
  EXPECT_EQ(RunPlumb({"audit", leaky_, "--output", "/nonexistent/dir/x"}).status, 2);
}

// A rename would replace the device or link with a file.
TEST_F(Cli, OutputIsWrittenThroughALinkOrAPipe) {
  const std::string target = dir_.Write("target.json", "");
  const std::string link = dir_.File("link");
  std::filesystem::create_symlink(target, link);
  EXPECT_EQ(RunPlumb({"audit", leaky_, "--format", "json", "--output", link}).status, 1);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  CheckReport(ReadFile(target));
  const Ended result = RunPlumb({"audit", leaky_, "--format", "json", "--output", "/dev/stdout"});
  EXPECT_EQ(result.status, 1);
  CheckReport(result.output);
}

TEST_F(Cli, AFullDiskIsStated) {
  const std::string link = dir_.File("full");
  std::filesystem::create_symlink("/dev/full", link);
  const Ended result = RunPlumb({"audit", leaky_, "--output", link});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected to write the output"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(Cli, OutputNeverOverwritesAnInput) {
  const std::string before = ReadFile(leaky_);
  EXPECT_EQ(RunPlumb({"audit", leaky_, "--output", leaky_}).status, 2);
  EXPECT_EQ(ReadFile(leaky_), before);
}

TEST_F(Cli, WrongUsageExitsTwoWithTheReason) {
  const struct {
    std::vector<std::string> arguments;
    const char* expected;
  } cases[] = {
      {{}, "expected a subcommand"},
      {{"frobnicate"},
       "fingerprint, learn, ledger, diff, certify, plan, run, watch, runs, run-edit, query, "
       "capsule, "
       "doctor, "
       "spool, "
       "mcp, "
       "completion), "
       "found"},
      {{"adit"}, "expected a subcommand (audit, rules"},
      {{"adit"}, "), found \"adit\"; did you mean \"audit\"?"},
      {{"--frob"}, "expected one of its options, found \"--frob\"; see plumb --help"},
      {{"audit"}, "expected at least one PATH"},
      {{"audit", "--bogus", clean_},
       "audit: expected one of its options, found \"--bogus\"; see plumb audit --help"},
      {{"audit", "--formt", "json", clean_}, "found \"--formt\"; did you mean --format?"},
      {{"audit", "--formt=json", clean_}, "found \"--formt\"; did you mean --format?"},
      {{"audit", clean_, "--format", "josn"},
       "audit: --format: expected text, json, sarif, html, junit, markdown or github, found "
       "\"josn\"; did you mean "
       "\"json\"?"},
      {{"audit", clean_, "--format", "text", "--format", "json"}, "expected it once"},
      {{"audit", clean_, "--quiet=maybe"}, "--quiet: expected no value, found \"maybe\""},
      {{"audit", clean_, "--sarif"}, "--sarif"},
      {{"audit", clean_, "--baseline", clean_}, "--baseline"},
      {{"audit", clean_, "--format", "xml"}, "xml"},
      {{"audit", clean_, "--format"}, "--format: expected a value, found none"},
      {{"audit", clean_, "--fail-on", "never"},
       "--fail-on: expected note, warning or error, found \"never\"; see plumb audit --help"},
      {{"audit", clean_, "--as", "parquet"},
       "expected one of flight-recorder, kineto, rollout-jsonl, prime-rl, nemo-rl, checkpoint, "
       "safetensors, run-record, nccl-log, tensorboard, wandb, swanlab, comet, sacred, mlflow, "
       "tracker-database, samples, jsonl, csv, trainer-log, found parquet"},
      {{"audit", clean_, "--rules", "causality/nope"}, "no rule matches 'causality/nope'"},
      {{"audit", clean_, "--rules", "meta/*,nope"}, "no rule matches 'nope'"},
      {{"audit", clean_, "--set", "nonsense"}, "expected RULE.OPTION=VALUE"},
      {{"audit", clean_, "--set", "meta/nope.x=1"}, "no rule 'meta/nope'"},
      {{"audit", clean_, "--set", "meta/data-loss.nope=1"}, "has no option 'nope'"},
      {{"audit", clean_, "--set", "meta/data-loss.error-share=lots"}, "expected a number"},
      {{"audit", clean_, "--set", "meta/data-loss.error-share=2"}, "expected 0 to 1"},
      {{"explain"}, "explain: expected RULE; see plumb explain --help"},
      {{"explain", "causality/moe-future-leek"}, "did you mean causality/moe-future-leak?"},
      {{"explain", "a", "b"}, "explain: expected no further word, found \"b\""},
      {{"explain", "zzz"}, "no rule 'zzz'; plumb rules lists them"},
      {{"rules", "--format", "yaml"}, "yaml"},
      {{"rules", "extra"}, "extra"},
      {{"watch", "--level", "erorr"},
       "--level: expected note, warning or error, found \"erorr\"; did"},
      {{"watch", "--timeout", "-1"}, "--timeout: expected a number of at least 0, found \"-1\""},
      {{"query", "incidnts"}, "found \"incidnts\"; did you mean \"incidents\"?"},
      {{"query", "series", "--run", "x", "--attempt", "y"},
       "query series: --attempt: expected a num"},
      {{"query", "series", "--run", "x", "--cells", "0"}, "expected 1 to 1000000, found \"0\""},
      {{"capsule", "--ouptut", "x", "a"}, "found \"--ouptut\"; did you mean --output?"},
      {{"capsule", "a"}, "capsule: expected --output DIR"},
      {{"spool"}, "spool: expected a subcommand (list, send)"},
  };
  for (const auto& c : cases) {
    const Ended result = RunPlumb(c.arguments);
    SCOPED_TRACE(c.arguments.empty() ? "" : c.arguments.back());
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(c.expected));
    EXPECT_EQ(result.output, "");
  }
}

TEST_F(Cli, SetAndRulesTakeOneValueEach) {
  EXPECT_EQ(RunPlumb({"audit", "--set", "meta/data-loss.error-share=0.5", clean_}).status, 0);
  EXPECT_EQ(RunPlumb({"audit", "--rules", "causality/*", clean_, "--rules", "meta/*"}).status, 0);
  EXPECT_EQ(RunPlumb({"audit", "--rules", "causality/*,meta/*", clean_}).status, 0);
}

TEST_F(Cli, RulesSelect) {
  const auto report = CheckReport(
      RunPlumb({"audit", leaky_, "--rules", "causality/moe-future-leak", "--format", "json"})
          .output);
  ASSERT_FALSE(report["verdicts"].empty());
  for (const auto& verdict : report["verdicts"])
    EXPECT_EQ(verdict["rule"], "causality/moe-future-leak");
}

TEST_F(Cli, AsForcesTheFormat) {
  EXPECT_EQ(RunPlumb({"audit", "--as", "safetensors", leaky_}).status, 1);
  const Ended result = RunPlumb({"audit", "--as", "run-record", leaky_, "--format", "json"});
  EXPECT_EQ(result.status, 2);
  const auto report = CheckReport(result.output);
  EXPECT_EQ(report["inputs"][0]["format"], "run-record");
}

TEST_F(Cli, HostileNamesAreEscaped) {
  Dump dump = LeakyDump();
  dump.metadata["layer"] = "layers\x1b[2J\n";
  dump.metadata["run"] =
      "\xE2\x80\xAE"
      "demo";
  const std::string path = dir_.Write("bad\xFF\x1bname", dump.File());
  const Ended text = RunPlumb({"audit", path, cut_});
  EXPECT_EQ(text.output.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.output.find("\xE2\x80\xAE"), std::string::npos);
  EXPECT_EQ(text.output.find('\xFF'), std::string::npos);
  CheckReport(RunPlumb({"audit", path, "--format", "json"}).output);
}

TEST_F(Cli, APipeIsRefusedNotWaitedFor) {
  const std::string pipe = dir_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Ended result = RunPlumb({"audit", pipe});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected a regular file"));
}

TEST_F(Cli, HelpAndVersion) {
  EXPECT_EQ(RunPlumb({"--help"}).status, 0);
  EXPECT_THAT(RunPlumb({"--help"}).output, HasSubstr("audit"));
  for (const char* command : {"audit", "rules", "explain"})
    EXPECT_EQ(RunPlumb({command, "--help"}).status, 0);
  EXPECT_THAT(RunPlumb({"--version"}).output, StartsWith("plumb "));
}

TEST_F(Cli, Catalogue) {
  const Ended text = RunPlumb({"rules"});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output, HasSubstr("causality/moe-future-leak"));
  EXPECT_THAT(text.output, Not(HasSubstr("planned"))) << "what is listed exists";
  const auto built = nlohmann::json::parse(RunPlumb({"rules", "--format", "json"}).output);
  for (const auto& rule : built["rules"]) EXPECT_EQ(rule["status"], "built") << rule;
  size_t planned = 0;
  const auto json = nlohmann::json::parse(RunPlumb({"rules", "--all", "--format", "json"}).output);
  for (const auto& rule : json["rules"]) planned += rule["status"] == "planned" ? 1 : 0;
  EXPECT_EQ(json["rules"].size(), built["rules"].size() + planned);
  std::istringstream all(RunPlumb({"rules", "--all"}).output);
  size_t marked = 0;
  for (std::string line; std::getline(all, line);)
    marked += line.find("  planned: ") != std::string::npos ? 1 : 0;
  EXPECT_EQ(marked, planned);
  std::set<std::string> ids;
  for (const auto& rule : json["rules"]) {
    ids.insert(rule["id"]);
    const Ended page = RunPlumb({"explain", rule["id"]});
    EXPECT_EQ(page.status, 0);
    EXPECT_THAT(page.output, StartsWith("# " + rule["id"].get<std::string>()))
        << "a page begins with its rule";
  }
  EXPECT_EQ(ids.size(), json["rules"].size());
  EXPECT_TRUE(ids.contains("ledger/one-seed")) << "an id of the contract, planned or not";
  EXPECT_THAT(RunPlumb({"explain", "meta/data-loss"}).output, HasSubstr("| `error-share` |"));
  // The short name is sufficient if only one rule has it.
  const Ended about = RunPlumb({"explain", "NaN"});
  EXPECT_EQ(about.status, 0);
  EXPECT_THAT(about.output, HasSubstr("  precision/non-finite "));
  EXPECT_EQ(RunPlumb({"explain", "zzz"}).status, 2);
  EXPECT_EQ(RunPlumb({"explain", "data-loss"}).output,
            RunPlumb({"explain", "meta/data-loss"}).output);
}

TEST_F(Cli, DocsAreThePages) {
  const std::string docs = dir_.File("docs");
  ASSERT_EQ(RunPlumb({"rules", "--write-docs", docs}).status, 0);
  EXPECT_EQ(ReadFile(docs + "/causality/moe-future-leak.md"),
            RunPlumb({"explain", "causality/moe-future-leak"}).output);
  EXPECT_THAT(ReadFile(docs + "/README.md"), HasSubstr("(causality/moe-future-leak.md)"));
  EXPECT_FALSE(std::filesystem::exists(docs + "/causality/label-shift.md"));  // planned
}

}  // namespace
}  // namespace plumbline::audit::testing
