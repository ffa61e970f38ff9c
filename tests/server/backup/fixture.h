// A server with data, and the two commands of an operator.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

class BackupTest : public testing::Test {
 protected:
  std::string Data() const { return folder_.File("data"); }
  std::string Dir() const { return folder_.File("backup"); }

  std::unique_ptr<Plumbd> Start(const std::string& data, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"--data", data});
    auto server = std::make_unique<Plumbd>(std::move(options));
    EXPECT_FALSE(server->address().empty()) << server->process().errors();
    return server;
  }
  std::vector<std::string> BackupCommand(const std::string& directory) const {
    return {PLUMBD_PROGRAM, "backup", directory, "--data", Data()};
  }
  Ended Backup(const std::string& directory) const { return RunToEnd(BackupCommand(directory)); }
  Ended Restore(const std::string& directory, const std::string& data) const {
    return RunToEnd({PLUMBD_PROGRAM, "restore", directory, "--data", data});
  }
  // Sends steps of one rank of "run"; returns once all are held.
  void Send(const Plumbd& server, uint64_t first, uint64_t last) const {
    AgentStream agent(server, 5, {source_}, first);
    for (uint64_t step = first; step <= last; ++step) {
      const auto at = static_cast<int64_t>(step);
      agent.Send(step % 7 == 0 ? LeakingStep(source_, at) : ScalarStep(source_, at, 0.5 * at),
                 step);
    }
    ASSERT_TRUE(agent.Acknowledged(last));
  }
  // Makes the data of a server that has stopped, with findings, checkpoints and several segments.
  void MakeData(uint64_t steps = 100) {
    const auto server = Start(Data(), {"--config", Small()});
    Send(*server, 1, steps);
    EXPECT_EQ(server->Stop(), 0);
  }
  std::string Small() const {
    return folder_.Write("small.toml",
                         "[checkpoint]\nseconds = 0.05\n[journal]\nsegment_bytes = "
                         "4096\ncommit_bytes = 1\nsync = \"never\"\n");
  }

  // Returns the paths below `directory`, sorted.
  static std::vector<std::string> FilesBelow(const std::string& directory) {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
      if (entry.is_regular_file())
        out.push_back(entry.path().lexically_relative(directory).string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  TempFolder folder_;
  const v1::Source source_ = SourceOf("run");
};

}  // namespace plumbline::test
