#include "server/settings/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "tests/support/files.h"

namespace plumbline::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  absl::Status Load(const std::string& text) {
    std::ofstream(path_) << text;
    ConfigMistakes mistakes;
    const absl::Status read = LoadConfigFile(path_, &config_, &mistakes);
    return read.ok() ? mistakes.ToStatus() : read;
  }
  // Returns all mistakes for which a start would be refused, one per line, without the file's name.
  std::vector<std::string> Wrong(const std::string& text) {
    std::ofstream(path_) << text;
    ConfigMistakes mistakes;
    EXPECT_TRUE(LoadConfigFile(path_, &config_, &mistakes).ok());
    ValidateConfig(config_, &mistakes);
    CheckConfigFiles(config_, &mistakes);
    std::istringstream stated{std::string(mistakes.ToStatus().message())};
    std::vector<std::string> lines;
    for (std::string line; std::getline(stated, line);) {
      EXPECT_EQ(line.rfind(path_ + ":", 0), 0u) << line;
      lines.push_back(line.substr(path_.size() + 1));
    }
    return lines;
  }

  const test::TempFolder folder_;
  const std::string path_ = folder_.File("plumbd.toml");
  Config config_;
};

TEST_F(ConfigTest, ReadsEveryKindOfValue) {
  ASSERT_TRUE(Load("[listen]\ngrpc = '127.0.0.1:1'\ninsecure = true\n"
                   "[ingest]\ngrace_seconds = 2\nack_seconds = 0.5\nqueue_bytes = 1048576\n"
                   "[rules]\nrun = ['causality/*']\nset = ['a.b=1']\nwindow_steps = 8\n"
                   "[log]\nlevel = 'debug'\n")
                  .ok());
  EXPECT_EQ(config_.grpc, "127.0.0.1:1");
  EXPECT_TRUE(config_.insecure);
  EXPECT_EQ(config_.grace_seconds, 2);
  EXPECT_EQ(config_.ack_seconds, 0.5);
  EXPECT_EQ(config_.queue_bytes, 1048576);
  EXPECT_THAT(config_.rules, ElementsAre("causality/*"));
  EXPECT_THAT(config_.settings, ElementsAre("a.b=1"));
  EXPECT_EQ(config_.window_steps, 8);
  EXPECT_EQ(config_.log_level, "debug");
}

TEST_F(ConfigTest, AnEmptyFileStaysSilent) {
  EXPECT_TRUE(Load("").ok());
  EXPECT_EQ(config_, Config());
}

TEST_F(ConfigTest, StatesLineKeyAndWhatWasExpected) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[listen]\n\ngrcp = 'x'\n",
       ":3: listen.grcp: unknown key in [listen]; did you mean \"grpc\"?"},
      {"[listen]\nport = 1\n", "unknown key in [listen]; known: grpc, http, insecure, reflection"},
      {"[listn]\n", ":1: listn: unknown table; did you mean \"listen\"?"},
      {"[zzzzzz]\n", "known: access, alerts, capsules, checkpoint, data, incidents, ingest"},
      {"[ingest]\nqueue_bytes = 'many'\n",
       ":2: ingest.queue_bytes: expected an integer, found \"many\""},
      {"[ingest]\nqueue_bytes = 1.5\n", "expected an integer, found 1.5"},
      {"[rules]\nrun = ['a', 3]\n",
       ":2: rules.run: expected an array of strings, found an array with an integer"},
      {"[listen]\ninsecure = 1\n", "listen.insecure: expected true or false, found 1"},
      {"[log]\nlevel = 2026-01-01\n", "log.level: expected a string, found a date or time"},
      {"\n\nlisten = 3\n", ":3: listen: expected a table [listen], found 3"},
      {"access = 3\n", ":1: access: expected tables [[access]], found 3"},
      {"[listen\n", ":1: "},
  };
  for (const auto& c : cases) {
    const absl::Status s = Load(c.text);
    EXPECT_FALSE(s.ok()) << c.text;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message)) << c.text;
    EXPECT_THAT(std::string(s.message()), HasSubstr(path_));
  }
  ConfigMistakes none;
  const absl::Status missing = LoadConfigFile("/nonexistent.toml", &config_, &none);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "/nonexistent.toml: cannot be read: No such file or directory");
  EXPECT_EQ(LoadConfigFile("/tmp", &config_, &none).message(),
            "/tmp: cannot be read: Is a directory");
}

TEST_F(ConfigTest, StatesEveryMistakeInTheOrderOfTheFile) {
  EXPECT_THAT(
      Wrong("[log]\nlevel = 'inof'\n"
            "[tls]\nkey = '/nonexistent'\n"
            "[[access]]\nname = 'a'\ntoken_file = '/nonexistent'\nscopes = ['raed', 'write']\n"
            "[[access]]\nname = 'a'\nsan = 'x'\nscopes = []\n"
            "[ingest]\ngrace_seconds = -1\nack_batches = 'x'\nqueue_byts = 1\n"
            "[rules]\nrun = ['causality/*', 'nope']\nset = ['nonsense']\n"
            "[suppressions]\nfile = '/nonexistent'\n"
            "[alerts]\npage = 'x'\n"
            "[[alerts.route]]\nname = 'r'\n"),
      ElementsAre(
          "2: log.level: expected trace, debug, info, warning, error or off, found \"inof\"; did "
          "you mean \"info\"?",
          "3: tls.cert: expected a file, as tls.key names one, found none: set both, or neither",
          "7: access.token_file: /nonexistent: cannot be read: No such file or directory",
          "8: access.scopes: expected read, write or admin, found \"raed\"; did you mean \"read\"?",
          "10: access.name: expected a unique name, found \"a\", which another entry uses",
          "12: access.scopes: expected some of read, write and admin, found none",
          "14: ingest.grace_seconds: expected 0 to 86400, found -1",
          "15: ingest.ack_batches: expected an integer, found \"x\"",
          "16: ingest.queue_byts: unknown key in [ingest]; did you mean \"queue_bytes\"?",
          "18: rules.run: no rule matches 'nope'",
          "19: rules.set: 'nonsense': expected RULE.OPTION=VALUE",
          "21: suppressions.file: /nonexistent: cannot be read: No such file or directory",
          HasSubstr("23: alerts.page: expected a URL like"),
          "24: alerts.route: expected one of alertmanager, webhook and command, found 0"));
}

// A consequence of a mistake is not reported.
TEST_F(ConfigTest, StatesAMistakeOnce) {
  EXPECT_THAT(Wrong("[listen]\ngrpc = '0.0.0.0:0'\n[tls]\ncert = 3\nkey = '/nonexistent'\n"),
              ElementsAre("4: tls.cert: expected a string, found 3"));
  config_ = Config();
  EXPECT_THAT(Wrong("[[access]]\nnmae = 'x'\n"),
              ElementsAre("2: access.nmae: unknown key in [access]; did you mean \"name\"?"));
}

TEST_F(ConfigTest, TheCommandLineIsNamedWhereItWon) {
  std::ofstream(path_) << "[ingest]\ngrace_seconds = 5\nack_seconds = 0\n";
  ConfigMistakes mistakes;
  ASSERT_TRUE(LoadConfigFile(path_, &config_, &mistakes).ok());
  config_.grace_seconds = -1;
  mistakes.GivenBy("ingest.grace_seconds", "--grace");
  ValidateConfig(config_, &mistakes);
  EXPECT_EQ(std::string(mistakes.ToStatus().message()),
            path_ + ":3: ingest.ack_seconds: expected 0.01 to 60, found 0\n" +
                "--grace: expected 0 to 86400, found -1");
}

TEST_F(ConfigTest, ChecksRangesAndAddresses) {
  EXPECT_TRUE(ValidateConfig(Config()).ok());
  const struct {
    std::function<void(Config&)> damage;
    const char* message;
  } cases[] = {
      {[](Config& c) { c.grpc = "127.0.0.1"; }, "HOST:PORT"},
      {[](Config& c) { c.grpc = "127.0.0.1:99999"; }, "HOST:PORT"},
      {[](Config& c) { c.grpc = "0.0.0.0:7433"; }, "listen.grpc: expected a loopback address"},
      {[](Config& c) { c.http = "[::]:7434"; }, "listen.http: expected a loopback address"},
      {[](Config& c) { c.grace_seconds = -1; }, "ingest.grace_seconds"},
      {[](Config& c) { c.grace_seconds = std::numeric_limits<double>::quiet_NaN(); },
       "grace_seconds"},
      {[](Config& c) { c.window_steps = 0; }, "rules.window_steps"},
      {[](Config& c) { c.log_level = "loud"; }, "log.level"},
  };
  for (const auto& c : cases) {
    Config config;
    c.damage(config);
    EXPECT_THAT(std::string(ValidateConfig(config).message()), HasSubstr(c.message));
  }
  Config open;
  open.grpc = "0.0.0.0:7433";
  open.insecure = true;
  EXPECT_TRUE(ValidateConfig(open).ok());
}

TEST_F(ConfigTest, KnowsLoopback) {
  for (const char* yes : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1", "unix:/tmp/x"}) {
    EXPECT_TRUE(IsLoopback(yes)) << yes;
  }
  for (const char* no :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1", "host:1", "1270.0.0.1:1"}) {
    EXPECT_FALSE(IsLoopback(no)) << no;
  }
}

TEST_F(ConfigTest, TheExampleNamesEveryOptionWithItsDefault) {
  const std::string path = PLUMBLINE_SOURCE_DIR "/packaging/plumbd.toml";
  ConfigMistakes mistakes;
  ASSERT_TRUE(LoadConfigFile(path, &config_, &mistakes).ok());
  ASSERT_TRUE(mistakes.ToStatus().ok()) << mistakes.ToStatus();
  EXPECT_TRUE(ValidateConfig(config_).ok());
  EXPECT_EQ(config_, Config());
  std::ifstream file(path);
  std::string table, line;
  std::vector<std::string> named;
  while (std::getline(file, line)) {
    if (line.rfind("# ", 0) == 0) line.erase(0, 2);
    const size_t name = line.find_first_not_of('[');
    if (name > 0 && name != std::string::npos) table = line.substr(name, line.find(']') - name);
    const size_t space = line.find(" = ");
    if (space != std::string::npos) named.push_back(table + "." + line.substr(0, space));
  }
  for (const std::string& key : ConfigKeys()) EXPECT_THAT(named, testing::Contains(key));
}

TEST_F(ConfigTest, RefusesWhatAJournalCannotBe) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[journal]\nsync = 'sometimes'\n", "journal.sync: expected commit, interval or never"},
      {"[journal]\nsegment_bytes = 1\n", "journal.segment_bytes: expected 4096 to"},
      {"[journal]\nkeep_days = -1.0\n", "journal.keep_days: expected 0 to 100000, found -1"},
      {"[journal]\nkeep_sample_days = -1.0\n", "journal.keep_sample_days: expected 0 to 100000"},
      {"[redact]\nids = true\n", "redact.key_file: expected a file of mode 0600"},
      {"[redact]\nkey_file = \"k\"\n", "redact.ids: expected true"},
      {"[redact]\nids = true\nkey_file = \"k\"\n[relay]\nupstream = \"127.0.0.1:1\"\n",
       "redact.ids: expected none together with relay.upstream"},
      {"[checkpoint]\nseconds = 0\n", "checkpoint.seconds: expected 0.01 to 86400"},
  };
  for (const auto& c : cases) {
    config_ = Config();
    ASSERT_TRUE(Load(c.text).ok());
    EXPECT_THAT(std::string(ValidateConfig(config_).message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace plumbline::server
