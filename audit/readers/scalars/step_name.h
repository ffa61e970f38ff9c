// Finds the column of the step in a table, by customary names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the rank of a step's name, 0 being the best: step, _step, global_step, iteration, iter,
// ... in any case; -1 for other names.
int StepNameRank(std::string_view name);
// Returns true if a step's name may begin with this word: "global" of "global step".
bool BeginsStepName(std::string_view word);
// True for a step within an object of a record: "fields/step", "record/extra/step".
bool IsNestedStep(std::string_view name);
// True for an epoch, which is the step if there is no other.
bool IsEpochName(std::string_view name);
// True for a batch within an epoch: "batch", "batch_idx".
bool IsBatchName(std::string_view name);
// True if the name has a word that only trainers use: loss, lr, perplexity, ...
bool HasTrainingWord(std::string_view name);

// Picks the step's column from the first records of a file. Prefers the candidate that falls back
// less often (a step within the epoch does), then the one that repeats less often (as with
// micro-batches), then a global step, then the better name.
class StepChoice {
 public:
  explicit StepChoice(std::string wanted) : wanted_(std::move(wanted)) {}

  // Returns true for a name that may be the step; others are ignored.
  bool MayBe(std::string_view name) const;
  // Takes the value of a record.
  void Offer(std::string_view name, double value);
  // Returns nullopt if no column has whole numbers.
  std::optional<std::string> Best() const;
  const std::string& wanted() const { return wanted_; }
  // If Best is an epoch that many rows have, returns the batch within it; else an empty name.
  std::string Batch() const;
  // Returns the epoch next to the step; empty if there is none.
  std::string Epoch() const;

 private:
  struct Seen {
    uint64_t whole = 0, other = 0, falls = 0, stays = 0;
    double last = -1;
    // True if it never changes: a total, a setting.
    bool still() const { return whole > 1 && stays + 1 == whole; }
  };
  static constexpr size_t kMostCandidates = 64;

  std::string wanted_;
  std::map<std::string, Seen, std::less<>> seen_;
};

// Called if steps are back at the first one, which is 0 or 1. Returns true if the loss continues
// from the last value: a new epoch of the same run. After a restart it would be near the first
// value. NaN after NaN continues.
bool LossGoesOn(double loss, double first, double last);

// Continues the count if steps restart with each epoch, because they would look like restarts of
// the run. Other steps stay unchanged. Memory is bounded.
class EpochSteps {
 public:
  // `epoch` and `loss` are those of the row; nullopt if it has none.
  int64_t Of(int64_t step, std::optional<int64_t> epoch, std::optional<double> loss);
  // Returns a note on how steps were counted; empty if none restarted. `name` is that of the step.
  std::string Note(std::string_view name) const;

 private:
  static constexpr size_t kMostEpochs = 1 << 16;

  int64_t Length(int64_t step) const;

  std::map<int64_t, int64_t> begins_;  // epoch -> steps before it
  std::optional<int64_t> epoch_;
  int64_t before_ = 0, first_ = -1, last_ = 0, stride_ = 1;
  std::optional<double> first_loss_;
  double last_loss_ = 0;
  bool counted_ = false;  // some steps restarted with an epoch
  uint64_t again_ = 0;    // number of restarts without an epoch
};

}  // namespace plumbline::audit
