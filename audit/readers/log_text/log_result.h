// Blocks that Ray Tune prints: "Result for PPO_CartPole_00000:", and below it indented YAML with
// "training_iteration: 5". Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/log_text/log_table.h"

namespace plumbline::audit {

class LogResult {
 public:
  // The line belongs to a block. *whole: it ends one, whose values are in row().
  bool Take(std::string_view line, bool* whole);
  const LogRow& row() const { return row_; }
  bool open() const { return open_; }  // within a block

 private:
  static constexpr size_t kMostTrials = 256, kMostValues = 1024;

  void Open(std::string_view trial);
  void TakeMember(size_t indent, std::string_view text);
  bool Close();

  bool open_ = false;
  std::vector<std::string> trials_;                    // names, in the order of their first block
  std::string prefix_;                                 // of the block's series: its trial
  std::vector<std::pair<size_t, std::string>> above_;  // keys with members: indent, path
  int64_t iteration_ = -1, timesteps_ = -1;
  LogRow row_;
};

}  // namespace plumbline::audit
