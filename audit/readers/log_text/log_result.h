// Reads blocks of names and values that have one step: Ray Tune's "Result for PPO_CartPole_00000:"
// above indented YAML with "training_iteration: 5", Hugging Face's "***** train metrics *****"
// above "  train_loss = 2.5", W&B's "wandb: Run summary:" above "wandb: train/loss 2.5". Not
// thread-safe.
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
  // Returns true if the line belongs to a block. If the line ends a block, sets *whole, and row()
  // has the values.
  bool Take(std::string_view line, bool* whole);
  // Call at the end of the log. Returns true if a block was open; row() has its values.
  bool End() { return kind_ != Kind::kNone && Close(); }
  const LogRow& row() const { return row_; }
  // True if the row is from W&B's summary.
  bool row_is_summary() const { return closed_ == Kind::kSummary; }
  bool open() const { return kind_ != Kind::kNone; }  // Returns true within a block.
  // True if the line that ended the block is not part of it.
  bool again() const { return again_; }

 private:
  static constexpr size_t kMostTrials = 256, kMostValues = 1024;

  enum class Kind { kNone, kTune, kMetrics, kSummary };
  Kind Heading(std::string_view line);
  void Open(std::string_view trial);
  bool TakeLine(std::string_view line);
  void TakeValue(std::string_view name, std::string_view value);
  void TakeMember(size_t indent, std::string_view text);
  bool Close();

  Kind kind_ = Kind::kNone, closed_ = Kind::kNone;
  bool again_ = false;
  std::string_view trial_;           // name of the trial in a heading
  std::vector<std::string> trials_;  // names, in the order of their first block
  std::string prefix_;               // prefix of the block's series: the name of its trial
  std::vector<std::pair<size_t, std::string>> above_;  // (indent, path) of the enclosing keys
  int64_t iteration_ = -1, timesteps_ = -1;
  int step_rank_ = -1;  // rank of the name that gave `iteration_`
  bool epoch_ = false;  // the iteration is an epoch
  LogRow open_row_, row_;
};

}  // namespace plumbline::audit
