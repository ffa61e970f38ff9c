// plumbd as a program: options, configuration, addresses, signals.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

struct Ended {
  int status;
  std::string output;
  std::string errors;
};

Ended RunPlumbd(std::vector<std::string> options) {
  options.insert(options.begin(), PLUMBD_PROGRAM);
  Process process(options);
  const int status = process.Wait();
  return {status, process.output(), process.errors()};
}

TEST(PlumbdProcess, SaysItsVersionAndItsOptions) {
  const Ended version = RunPlumbd({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.output, MatchesRegex("plumbd [0-9.]+\n"));
  const Ended help = RunPlumbd({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* option :
       {"--grpc", "--http", "--data", "--config", "--check-config", "--insecure"}) {
    EXPECT_THAT(help.output, HasSubstr(option));
  }
}

TEST(PlumbdProcess, RefusesWhatItDoesNotUnderstand) {
  const struct {
    std::vector<std::string> options;
    const char* message;
  } cases[] = {
      {{"--bogus"}, "--bogus"},
      {{"stray"}, "stray"},
      {{"--grpc", "nonsense"}, "HOST:PORT"},
      {{"--grpc", "0.0.0.0:0"}, "not a loopback address"},
      {{"--http", "0.0.0.0:0"}, "not a loopback address"},
      {{"--rules", "nothing-like-this"}, "no rule matches"},
      {{"--set", "nonsense"}, "RULE.OPTION=VALUE"},
      {{"--grace", "-3"}, "grace_seconds"},
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
  std::ofstream(path) << "[ingest]\n\n\ngrace_secnds = 5\n";
  ended = RunPlumbd({"--config", path, "--check-config"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.errors, HasSubstr(path + ":4: unknown key \"grace_secnds\""));
  EXPECT_THAT(ended.errors, HasSubstr("grace_seconds"));
}

TEST(PlumbdProcess, TheCommandLineWinsOverTheFile) {
  TempFolder folder;
  const std::string path = folder.File("plumbd.toml");
  std::ofstream(path) << "[listen]\ngrpc = '0.0.0.0:0'\nhttp = 'off'\n";
  EXPECT_EQ(RunPlumbd({"--config", path, "--check-config"}).status, 2);
  EXPECT_EQ(RunPlumbd({"--config", path, "--grpc", "127.0.0.1:0", "--check-config"}).status, 0);
}

TEST(PlumbdProcess, SaysWhereItListensAndStopsOnASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Plumbd server;
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    EXPECT_THAT(server.address(), MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
    EXPECT_TRUE(Eventually([&] { return !server.process().output().empty(); }));
    EXPECT_THAT(server.process().output(),
                MatchesRegex("plumbd [0-9.]+ listening on " + server.address() + "\n"));
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
  const Ended second = RunPlumbd({"--grpc", first.address(), "--http", "off"});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.errors, HasSubstr("cannot listen on " + first.address()));
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

// What plumbd's HTTP port answers to one GET; empty when nothing did.
std::string HttpGet(const std::string& address, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) > 0) {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
        answer.append(buffer, static_cast<size_t>(n));
      }
    }
  }
  close(fd);
  return answer;
}

TEST(PlumbdProcess, AnswersOverHttp) {
  Plumbd server({"--http", "127.0.0.1:0"});
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  std::string http;
  ASSERT_TRUE(Eventually([&] {
    const std::string log = server.process().errors();
    const size_t at = log.find("http on ");
    const size_t end = log.find('\n', at);
    if (at == std::string::npos || end == std::string::npos) return false;
    http = log.substr(at + 8, end - at - 8);
    return true;
  }));
  EXPECT_THAT(HttpGet(http, "/healthz"), testing::AllOf(HasSubstr("200"), HasSubstr("ok")));
  EXPECT_THAT(HttpGet(http, "/version"), HasSubstr("\"version\""));
  EXPECT_THAT(HttpGet(http, "/nothing"), HasSubstr("404"));
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace plumbline::test
