// plumb watch, runs, query and doctor against a real plumbd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "audit/live/doctor_batch.h"
#include "tests/server/http_support.h"
#include "tests/server/support.h"
#include "transport/spool.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Plumb(std::vector<std::string> words) {
  words.insert(words.begin(), PLUMB_PROGRAM);
  return words;
}

Ended RunPlumb(std::vector<std::string> words, std::vector<std::string> environment = {}) {
  return RunToEnd(Plumb(std::move(words)), std::move(environment));
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(server_.address().empty()) << server_.process().errors(); }
  // Sends a leaking step; the run's name has control characters that would clear a terminal.
  void Leak(const std::string& run, uint64_t stream) {
    const v1::Source source = SourceOf(run);
    AgentStream agent(server_, stream, {source});
    agent.Send(LeakingStep(source, 7, "layers.3"), 1);
    agent.Send(Goodbye(source, 7), 2);
    ASSERT_TRUE(agent.Acknowledged(2));
    ASSERT_TRUE(Eventually([&] {
      const auto info = server_.Run(run);
      return info && info->ranks_finished() == 1 &&
             !server_.Incidents(run, audit::kDoctorRule).empty();
    }));
  }
  Plumbd server_;
};

TEST_F(CliTest, WatchPrintsAFindingAsAPersonReadsIt) {
  Process watch(Plumb({"watch", "--server", server_.address()}));
  ASSERT_TRUE(
      Eventually([&] { return watch.errors().find("0 incidents open") != std::string::npos; }));
  Leak("exp1\x1b[2J", 61);
  ASSERT_TRUE(Eventually([&] { return watch.output().find("proved") != std::string::npos; }));
  watch.Signal(SIGINT);
  EXPECT_EQ(watch.Wait(), 0);
  const std::string text = watch.output();
  for (const char* part :
       {"incident 1 opened", "error", "causality/moe-future-leak", "layers.3", "step 7", "rank 0",
        "exp1\\x1b[2J", "do first", "drop_tokens=False", "how sure"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const Ended full = RunPlumb({"watch", "-v", "--once", "--server", server_.address()});
  for (const char* part : {"exp1\\x1b[2J", "lost expert", "drop-by-score", "fix"}) {
    EXPECT_THAT(full.output, HasSubstr(part));
  }
  EXPECT_THAT(full.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));  // output is no terminal, so there is no colour, also
                                              // none from the trainer's names
  EXPECT_EQ(watch.errors(), "plumb watch: watching every run at " + server_.address() +
                                "; 0 incidents open so far\n");
}

TEST_F(CliTest, WatchOnceFiltersAndSpeaksJson) {
  Leak("a", 62);
  Leak("b", 63);
  const Ended all =
      RunPlumb({"watch", "--once", "--format", "json", "--server", server_.address()});
  EXPECT_EQ(all.status, 0);
  std::istringstream lines(all.output);
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.front()["event"], "existing");
  EXPECT_EQ(events.back()["event"], "caught-up");
  EXPECT_EQ(events.front()["incident"]["finding"]["fingerprint"].get<std::string>().size(), 32u);
  const Ended one = RunPlumb({"watch", "b", "--once", "--server", server_.address()});
  EXPECT_THAT(one.output, testing::AllOf(HasSubstr("run b"), Not(HasSubstr("run a"))));
  const Ended level =
      RunPlumb({"watch", "a", "--once", "--level", "error", "--server", server_.address()});
  EXPECT_THAT(level.output, HasSubstr("causality/moe-future-leak"));
  EXPECT_EQ(RunPlumb({"watch", "--level", "loud", "--server", server_.address()}).status, 2);
  EXPECT_EQ(RunPlumb({"watch", "--bogus"}).status, 2);
}

TEST_F(CliTest, WatchEndsAfterItsTimeAndFailsOnceWithoutAServer) {
  // Status 2 if the time was too short for an answer.
  double seconds = 0.1;
  EXPECT_TRUE(Eventually([&] {
    seconds *= 2;
    return RunPlumb({"watch", "--timeout", std::to_string(seconds), "--server", server_.address()})
               .status == 0;
  }));
  ASSERT_EQ(server_.Stop(), 0);
  const Ended gone = RunPlumb({"watch", "--once", "--server", server_.address()});
  EXPECT_EQ(gone.status, 2);
  EXPECT_THAT(gone.errors, HasSubstr("no server answers at " + server_.address()));
  // Without a server, an empty output must not look like "no findings".
  const Ended waited = RunPlumb({"watch", "--timeout", "0.3", "--server", server_.address()});
  EXPECT_EQ(waited.status, 2);
  EXPECT_THAT(waited.errors, HasSubstr("no server answered at " + server_.address()));
}

// The kernel accepts the connection, but for a while no server answers.
TEST_F(CliTest, AServerThatIsSlowToGreetIsNotADeadOne) {
  server_.process().Signal(SIGSTOP);
  Process runs(Plumb({"runs", "--server", server_.address()}));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  server_.process().Signal(SIGCONT);
  EXPECT_EQ(runs.Wait(), 0) << runs.errors();
}

TEST_F(CliTest, AnAddressNeedsAPort) {
  for (const char* address :
       {"localhost", "127.0.0.1:99999", "127.0.0.1:", ":7433", "[::1]", "http://127.0.0.1:7433"}) {
    const Ended runs = RunPlumb({"runs", "--server", address});
    EXPECT_EQ(runs.status, 2) << address;
    EXPECT_THAT(runs.errors, HasSubstr("expected an address HOST:PORT or unix:PATH, found \"" +
                                       std::string(address) + "\""));
  }
}

TEST(CliPorts, TheHttpPortIsDistinguishedFromTheGrpcPort) {
  Plumbd server({"--http", "127.0.0.1:0"});
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  const std::string http = HttpAddress(server);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"runs"}, {"watch", "--once"}, {"query", "info"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--server", http});
    const Ended ended = RunPlumb(words);
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.errors,
                HasSubstr(http + " answers HTTP, not gRPC: it is plumbd's --http port"));
  }
  ASSERT_EQ(server.Stop(), 0);
  EXPECT_THAT(RunPlumb({"runs", "--server", http}).errors, Not(HasSubstr("answers HTTP")));
}

// A relay answers no queries: the message names the server to ask, and doctor goes through it.
TEST_F(CliTest, ARelayNamesTheServerAboveIt) {
  Plumbd relay({"--relay", server_.address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"runs"},
                                                  {"watch", "--once"},
                                                  {"query", "info"},
                                                  {"query", "incidents"},
                                                  {"capsule", "00", "--output", "/tmp/none"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--server", relay.address()});
    const Ended ended = RunPlumb(words);
    EXPECT_EQ(ended.status, 2) << command[0];
    EXPECT_THAT(ended.errors, HasSubstr("this is a relay of " + server_.address())) << command[0];
    EXPECT_THAT(ended.errors, HasSubstr("--server " + server_.address()));
  }
#ifndef PLUMBLINE_SANITIZED
  const Ended doctor = RunPlumb({"doctor", "--timeout", "60", "--server", relay.address()},
                                {"PYTHON=/nonexistent/python"});
  EXPECT_EQ(doctor.status, 0) << doctor.output;
  EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +relay +" + relay.address() +
                                                    " is a relay of " + server_.address()));
  EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +server +" + server_.address()));
  EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +finding +causality/moe-future-leak"));
#endif
}

TEST_F(CliTest, WatchWaitsForAServerThatWentAndComesBack) {
  Process watch(Plumb({"watch", "--server", server_.address()}));
  Leak("before", 64);
  ASSERT_TRUE(Eventually([&] { return watch.output().find("run before") != std::string::npos; }));
  const std::string address = server_.address();
  server_.Stop();
  ASSERT_TRUE(
      Eventually([&] { return watch.errors().find("waiting for it") != std::string::npos; }));
  EXPECT_TRUE(watch.running());
  auto again = Plumbd::At(address);
  ASSERT_EQ(again->address(), address);
  const v1::Source source = SourceOf("after");
  AgentStream agent(*again, 65, {source});
  agent.Send(LeakingStep(source, 0), 1);
  EXPECT_TRUE(Eventually([&] { return watch.output().find("run after") != std::string::npos; }));
  EXPECT_THAT(watch.errors(), HasSubstr("the server answers again"));
  watch.Signal(SIGTERM);
  EXPECT_EQ(watch.Wait(), 0);
}

TEST_F(CliTest, RunsAndQueryShowWhatIsHeld) {
  Leak("held\nrun", 66);
  const Ended runs = RunPlumb({"runs", "--server", server_.address()});
  EXPECT_EQ(runs.status, 0);
  EXPECT_THAT(runs.output,
              testing::AllOf(HasSubstr("held\\nrun"), HasSubstr("finished"), HasSubstr("step 7")));
  const Ended json = RunPlumb({"runs", "--format", "json", "--server", server_.address()});
  EXPECT_EQ(nlohmann::json::parse(json.output)["run"], "held\nrun");
  const Ended incidents =
      RunPlumb({"query", "--rule", "causality/*", "--server", server_.address()});
  EXPECT_THAT(incidents.output,
              testing::AllOf(HasSubstr("1 incident\n"), HasSubstr("moe-future-leak")));
  const Ended verdicts = RunPlumb({"query", "verdicts", "--server", server_.address()});
  EXPECT_THAT(verdicts.output, testing::AllOf(HasSubstr("finding"), HasSubstr("judged")));
  const Ended info = RunPlumb({"query", "info", "--format", "json", "--server", server_.address()});
  EXPECT_EQ(nlohmann::json::parse(info.output)["batches"], 2);
  EXPECT_EQ(RunPlumb({"query", "everything"}).status, 2);
}

TEST_F(CliTest, ARunThatTheServerDoesNotKnowIsNotARunWithoutFindings) {
  Leak("a", 67);
  const v1::Source healthy = SourceOf("healthy");
  AgentStream agent(server_, 68, {healthy});
  agent.Send(ScalarStep(healthy, 0), 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  ASSERT_TRUE(Eventually([&] { return server_.Run("healthy").has_value(); }));
  const std::vector<std::vector<std::string>> commands = {
      {"watch", "--once", "--run"},
      {"watch", "--once", "--format", "json", "--run"},
      {"runs"},
      {"query", "--run"},
      {"query", "incidents", "--run"},
      {"query", "verdicts", "--run"},
      {"query", "--rule", "none*", "--run"},
      {"runs", "--format", "json"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"healthy", "--server", server_.address()});
    EXPECT_EQ(RunPlumb(command).status, 0) << command[1];
    command[command.size() - 3] = "NOSUCH";
    const Ended unknown = RunPlumb(command);
    EXPECT_EQ(unknown.status, 2) << command[1];
    EXPECT_EQ(unknown.output, "") << command[1];
    EXPECT_THAT(unknown.errors,
                HasSubstr("no run \"NOSUCH\" on " + server_.address() + " (known: healthy, a)\n"));
  }
}

TEST_F(CliTest, AWatchWaitsForARunThatIsYetToCome) {
  Process watch(Plumb({"watch", "later", "--server", server_.address()}));
  ASSERT_TRUE(Eventually([&] {
    return watch.errors().find("(known: none); it may connect later") != std::string::npos;
  }));
  Leak("later", 69);
  EXPECT_TRUE(Eventually([&] { return watch.output().find("run later") != std::string::npos; }));
  watch.Signal(SIGINT);
  EXPECT_EQ(watch.Wait(), 0);
}

TEST_F(CliTest, WatchStatesThatItWaitsForAServer) {
  server_.Stop();
  Process watch(Plumb({"watch", "--server", server_.address()}));
  EXPECT_TRUE(Eventually([&] {
    return watch.errors().find("waiting for " + server_.address() + ", is plumbd running there?") !=
           std::string::npos;
  }));
  watch.Signal(SIGINT);
  EXPECT_EQ(watch.Wait(), 2);
  EXPECT_THAT(watch.errors(), HasSubstr("no server answered at " + server_.address()));
}

// A delivery waits as long as allowed.
TEST_F(CliTest, SpoolSendNamesTheServerThatItWaitsFor) {
  const std::filesystem::path spools =
      std::filesystem::path(::testing::TempDir()) / ("spools-" + std::to_string(getpid()));
  v1::Source source;
  source.set_run("kept");
  auto spool = transport::Spool::Create(spools, source, 7, {});
  ASSERT_TRUE(spool.ok()) << spool.status();
  v1::Batch batch;
  batch.set_sequence(1);
  ASSERT_TRUE((*spool)->Append(1, transport::Seal(batch)).ok());
  spool->reset();
  server_.Stop();
  Process send(Plumb({"spool", "send", spools, "--server", server_.address()}));
  EXPECT_TRUE(Eventually([&] {
    return send.errors().find("plumb spool send: waiting for " + server_.address() +
                              ", is plumbd running there?") != std::string::npos;
  }));
  send.Signal(SIGINT);
  EXPECT_EQ(send.Wait(), 1);
  EXPECT_THAT(send.errors(),
              HasSubstr("stopped before " + server_.address() + " received everything"));
  // Without a spool there is nothing to wait for.
  std::filesystem::remove_all(spools);
  std::filesystem::create_directory(spools);
  const Ended none = RunPlumb({"spool", "send", spools, "--server", server_.address()});
  EXPECT_EQ(none.status, 0) << none.errors;
  EXPECT_EQ(none.errors, "");
  std::filesystem::remove_all(spools);
}

TEST_F(CliTest, TheServerMayComeFromTheEnvironment) {
  const Ended runs = RunPlumb({"runs"}, {"PLUMBLINE_SERVER=" + server_.address()});
  EXPECT_EQ(runs.status, 0);
  EXPECT_THAT(runs.output, HasSubstr("no runs"));
}

TEST_F(CliTest, DoctorFollowsOneFindingAllTheWay) {
  for (int again = 0; again < 2; ++again) {  // the second finds an incident that exists already
    const Ended doctor = RunPlumb({"doctor", "--timeout", "60", "--server", server_.address()});
#ifndef PLUMBLINE_SANITIZED  // the agent stays out of a process under a sanitizer
    EXPECT_EQ(doctor.status, 0) << doctor.output;
    EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +library"));
#endif
    EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +server"));
    EXPECT_THAT(doctor.output, testing::ContainsRegex("ok +finding +causality/moe-future-leak"));
    for (const char* what : {"library", "pytorch", "gpu driver", "cuda", "nccl"}) {
      EXPECT_THAT(doctor.output, HasSubstr(what));
    }
    for (const v1::Incident& incident : server_.Incidents(audit::kDoctorRun))
      EXPECT_EQ(incident.state(), v1::Incident::STATE_RESOLVED);
    EXPECT_FALSE(server_.Incidents(audit::kDoctorRun).empty());
  }
}

// Records need no server. If none was requested, a missing server is not a failure.
TEST(CliDoctor, WithoutAServerAllMayBeWell) {
  const std::vector<std::string> nowhere = {"PLUMBLINE_SERVER=", "PYTHON=/nonexistent/python"};
  const Ended doctor = RunPlumb({"doctor"}, nowhere);
  if (doctor.output.find("optional server") == std::string::npos) {
    // If another plumbd has the default address, doctor tries it.
    EXPECT_THAT(doctor.output, testing::ContainsRegex("(ok|failed) +server +127.0.0.1:7433"));
    return;
  }
#ifndef PLUMBLINE_SANITIZED
  EXPECT_EQ(doctor.status, 0) << doctor.output;
#endif
  EXPECT_THAT(doctor.output, testing::ContainsRegex("optional +finding +not tested"));
}

TEST_F(CliTest, DoctorStatesWhatIsMissingAndWhatToDo) {
  server_.Stop();
  const Ended doctor = RunPlumb({"doctor", "--server", server_.address()},
                                {"PLUMBLINE_LIBRARY=/nonexistent", "PYTHON=/nonexistent/python"});
  EXPECT_EQ(doctor.status, 1);
  EXPECT_THAT(doctor.output, testing::ContainsRegex("failed +server"));
  EXPECT_THAT(doctor.output, HasSubstr("start one there with plumbd --grpc"));
  EXPECT_THAT(doctor.output, testing::ContainsRegex("optional +pytorch"));
  EXPECT_THAT(doctor.output, HasSubstr("not tested"));
}

}  // namespace
}  // namespace plumbline::test
