// plumbd as a program: options, configuration, addresses, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/server/http_support.h"
#include "tests/server/support.h"
#include "tests/support/shells.h"

namespace plumbline::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

Ended RunPlumbd(std::vector<std::string> options) {
  options.insert(options.begin(), PLUMBD_PROGRAM);
  return RunToEnd(options);
}

TEST(PlumbdProcess, StatesItsVersionAndItsOptions) {
  const Ended version = RunPlumbd({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.output, MatchesRegex("plumbd [0-9.]+[^ ]*\n"));
  const Ended help = RunPlumbd({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* option : {"--grpc", "--http", "--data", "--config", "--check-config",
                             "--insecure", "Exit status:\n  0  ", "Examples:\n    plumbd "}) {
    EXPECT_THAT(help.output, HasSubstr(option));
  }
}

TEST(PlumbdProcess, CompletesItsOptions) {
  const Ended script = RunPlumbd({"--completion", "bash"});
  EXPECT_EQ(script.status, 0);
  EXPECT_THAT(BashOffers(script.output, {"plumbd", "--check"}), ElementsAre("--check-config"));
  EXPECT_THAT(BashOffers(script.output, {"plumbd", "--log-level", "w"}), ElementsAre("warning"));
  EXPECT_THAT(BashOffers(script.output, {"plumbd", "--data", ""}), ElementsAre("dirnames"));
  EXPECT_EQ(RunPlumbd({"--completion", "csh"}).status, 2);
}

TEST(PlumbdProcess, RefusesWhatItDoesNotUnderstand) {
  const struct {
    std::vector<std::string> options;
    const char* message;
  } cases[] = {
      {{"--bogus"}, "plumbd: expected one of its options, found \"--bogus\"; see plumbd --help"},
      {{"--grcp", "127.0.0.1:0"}, "found \"--grcp\"; did you mean --grpc?"},
      {{"stray"}, "expected a subcommand (backup, restore), found \"stray\""},
      {{"--window", "many"}, "--window: expected a number in its range, found \"many\""},
      {{"--grpc", "nonsense"}, "HOST:PORT"},
      {{"--grpc", "0.0.0.0:0"}, "plumbd: --grpc: expected a loopback address, found \"0.0.0.0:0\""},
      {{"--http", "0.0.0.0:0"}, "plumbd: --http: expected a loopback address"},
      {{"--rules", "nothing-like-this"}, "no rule matches"},
      {{"--set", "nonsense"}, "RULE.OPTION=VALUE"},
      {{"--grace", "-3"}, "--grace: expected 0 to 86400, found -3"},
      {{"--config", "/nonexistent.toml"}, "/nonexistent.toml"},
      {{"--data", "/dev/null/x"}, "/dev/null/x"},
  };
  for (const auto& c : cases) {
    const Ended ended = RunPlumbd(c.options);
    EXPECT_EQ(ended.status, 2) << c.message;
    EXPECT_THAT(ended.errors, HasSubstr(c.message));
  }
}

TEST(PlumbdProcess, ChecksAConfigurationWithoutServing) {
  TempFolder folder;
  const std::string path = folder.File("plumbd.toml");
  std::ofstream(path) << "[ingest]\ngrace_seconds = 5\n";
  Ended ended = RunPlumbd({"--config", path, "--check-config"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("valid"));
  std::ofstream(path) << "[ingest]\n\n\ngrace_secnds = 5\n[store]\ndays = -1\n";
  ended = RunPlumbd({"--config", path, "--check-config"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.errors, "plumbd: " + path +
                              ":4: ingest.grace_secnds: unknown key in [ingest]; did you mean "
                              "\"grace_seconds\"?\nplumbd: " +
                              path + ":6: store.days: expected 0 to 36500, found -1\n");
}

TEST(PlumbdProcess, TheCommandLineWinsOverTheFile) {
  TempFolder folder;
  const std::string path = folder.File("plumbd.toml");
  std::ofstream(path) << "[listen]\ngrpc = '0.0.0.0:0'\nhttp = 'off'\n";
  EXPECT_EQ(RunPlumbd({"--config", path, "--check-config"}).status, 2);
  EXPECT_EQ(RunPlumbd({"--config", path, "--grpc", "127.0.0.1:0", "--check-config"}).status, 0);
}

TEST(PlumbdProcess, StatesWhereItListensAndStopsOnASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Plumbd server;
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    EXPECT_THAT(server.address(), MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
    EXPECT_TRUE(Eventually([&] { return !server.process().output().empty(); }));
    EXPECT_THAT(server.process().output(),
                MatchesRegex("plumbd [0-9.]+[^ ]* listening on " + server.address() + "\n"));
    server.process().Signal(signal);
    EXPECT_EQ(server.process().Wait(), 0);
  }
}

TEST(PlumbdProcess, StopsAlthoughAClientHoldsItsStream) {
  Plumbd server;
  AgentStream agent(server, 51, {SourceOf("held")});
  ASSERT_TRUE(agent.Welcomed());
  EXPECT_EQ(server.Stop(), 0);
}

TEST(PlumbdProcess, APortThatIsTakenIsAnErrorNotASharedPort) {
  Plumbd first;
  TempFolder folder;
  const std::string data = folder.File("data");
  const Ended second = RunPlumbd({"--grpc", first.address(), "--http", "off", "--data", data});
  EXPECT_EQ(second.status, 2);
  const std::string port = first.address().substr(first.address().rfind(':') + 1);
  EXPECT_THAT(second.errors,
              HasSubstr("plumbd: cannot listen on " + first.address() + ": port " + port +
                        " is in use; is another plumbd running? (--grpc HOST:PORT selects "
                        "another one)\n"));
  EXPECT_FALSE(std::filesystem::exists(data));  // detected before anything was opened
}

TEST(PlumbdProcess, ARestartedServerTakesUpTheStreamsAgain) {
  auto server = std::make_unique<Plumbd>();
  const std::string address = server->address();
  const v1::Source source = SourceOf("restart");
  {
    AgentStream agent(*server, 52, {source});
    for (uint64_t s = 1; s <= 8; ++s) agent.Send(ScalarStep(source, static_cast<int64_t>(s)), s);
    ASSERT_TRUE(agent.Acknowledged(8));
    server->process().Signal(SIGKILL);
    server->process().Wait();
    EXPECT_FALSE(agent.Ended().ok());
  }
  server = Plumbd::At(address);
  ASSERT_EQ(server->address(), address) << server->process().errors();
  AgentStream agent(*server, 52, {source}, 9);
  uint64_t held = 99;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 0u);
  agent.Send(LeakingStep(source, 9), 9);
  EXPECT_TRUE(Eventually([&] { return !server->Incidents("restart").empty(); }));
}

TEST(PlumbdProcess, AnswersOverHttp) {
  Plumbd server({"--http", "127.0.0.1:0"});
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  const std::string http = HttpAddress(server);
  EXPECT_THAT(HttpAnswer(http, "/healthz"), testing::AllOf(HasSubstr("200"), HasSubstr("ok")));
  EXPECT_THAT(HttpAnswer(http, "/version"), HasSubstr("\"version\""));
  EXPECT_THAT(HttpAnswer(http, "/nothing"), HasSubstr("404"));
  EXPECT_EQ(server.Stop(), 0);
}

// Only one rank of eight is instrumented. Nothing is judged during the whole grace, and this is
// reported.
TEST(PlumbdProcess, NamesWhatItWaitsFor) {
  Plumbd server;
  const v1::Source source = SourceOf("lonely", 2, 8);
  AgentStream agent(server, 7, {source});
  agent.Send(ScalarStep(source, 0), 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  Ended runs;
  EXPECT_TRUE(Eventually([&] {
    runs = RunToEnd({PLUMB_PROGRAM, "runs", "--server", server.address()});
    return runs.output.find("waiting for 7 ranks of 8 to connect") != std::string::npos;
  })) << runs.output;
  EXPECT_THAT(
      RunToEnd({PLUMB_PROGRAM, "watch", "--server", server.address(), "--timeout", "1"}).errors,
      HasSubstr("run lonely: its steps wait for 7 ranks of 8 to connect"));
  EXPECT_TRUE(Eventually([&] {
    return server.process().errors().find(
               "run lonely: waits for ranks 0-1, 3-7 of its world of 8") != std::string::npos;
  })) << server.process().errors();
}

}  // namespace
}  // namespace plumbline::test
