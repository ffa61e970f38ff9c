#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <vector>

namespace plumbline::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  absl::Status Load(const std::string& text) {
    std::ofstream(path_) << text;
    return LoadConfigFile(path_, &config_);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  const std::string path_ = testing::TempDir() + "plumbd_config_test.toml";
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

TEST_F(ConfigTest, AnEmptyFileSaysNothing) {
  EXPECT_TRUE(Load("").ok());
  EXPECT_EQ(config_, Config());
}

TEST_F(ConfigTest, SaysLineKeyAndWhatWasExpected) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[listen]\n\ngrcp = 'x'\n", ":3: unknown key \"grcp\" in [listen]; did you mean \"grpc\"?"},
      {"[listn]\n", ":1: unknown table [listn]; did you mean \"listen\"?"},
      {"[zzzzzz]\n", "known: access, alerts, capsules, checkpoint, data, incidents, ingest"},
      {"[ingest]\nqueue_bytes = 'many'\n",
       ":2: ingest.queue_bytes must be an integer, found a string"},
      {"[ingest]\nqueue_bytes = 1.5\n", "must be an integer, found a number with a fraction"},
      {"[rules]\nrun = ['a', 3]\n", ":2: rules.run must be an array of strings"},
      {"[listen]\ninsecure = 1\n", "must be true or false, found an integer"},
      {"\n\nlisten = 3\n", ":3: listen must be a table"},
      {"[listen\n", ":1: "},
  };
  for (const auto& c : cases) {
    const absl::Status s = Load(c.text);
    EXPECT_FALSE(s.ok()) << c.text;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message)) << c.text;
    EXPECT_THAT(std::string(s.message()), HasSubstr(path_));
  }
  EXPECT_EQ(LoadConfigFile("/nonexistent.toml", &config_).code(), absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, ChecksRangesAndAddresses) {
  EXPECT_TRUE(ValidateConfig(Config()).ok());
  const struct {
    std::function<void(Config&)> damage;
    const char* message;
  } cases[] = {
      {[](Config& c) { c.grpc = "127.0.0.1"; }, "HOST:PORT"},
      {[](Config& c) { c.grpc = "127.0.0.1:99999"; }, "HOST:PORT"},
      {[](Config& c) { c.grpc = "0.0.0.0:7433"; }, "not a loopback address"},
      {[](Config& c) { c.http = "[::]:7434"; }, "not a loopback address"},
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
  const absl::Status loaded = LoadConfigFile(path, &config_);
  ASSERT_TRUE(loaded.ok()) << loaded;
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
      {"[journal]\nsync = 'sometimes'\n", "journal.sync must be commit, interval or never"},
      {"[journal]\nsegment_bytes = 1\n", "journal.segment_bytes must be between"},
      {"[journal]\nkeep_days = -1.0\n", "journal.keep_days must be between"},
      {"[checkpoint]\nseconds = 0\n", "checkpoint.seconds must be between"},
  };
  for (const auto& c : cases) {
    config_ = Config();
    ASSERT_TRUE(Load(c.text).ok());
    EXPECT_THAT(std::string(ValidateConfig(config_).message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace plumbline::server
