// Finds the column of the step in a table, by customary names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the rank of a step's name (step, _step, global_step, iteration, iter, ... in any case). 0
// is the best rank; other names have -1.
int StepNameRank(std::string_view name);
// Returns true if a step's name may begin with this word: "global" of "global step".
bool BeginsStepName(std::string_view word);
// True for a step in a nested object of a record: "fields/step", "record/extra/step".
bool IsNestedStep(std::string_view name);
// True for an epoch. It is used as the step if there is no other step.
bool IsEpochName(std::string_view name);
// True for a batch within an epoch: "batch", "batch_idx".
bool IsBatchName(std::string_view name);
// True if the name has a word that only trainers use: loss, lr, perplexity, ...
bool HasTrainingWord(std::string_view name);

// Picks the step's column from the first records of a file. Prefers the candidate that falls back
// less often (a step within the epoch falls back), then the one that repeats less often (a step of
// micro-batches repeats), then a global step, then the better name.
class StepChoice {
 public:
  explicit StepChoice(std::string wanted) : wanted_(std::move(wanted)) {}

  // Returns true for a name that may be the step. Other names are ignored.
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

// Called if steps are again at the first one, which is 0 or 1. Returns true if the loss is nearer
// to the last value than to the first: then it is a new epoch, not a restart of the run. NaN after
// NaN also continues.
bool LossGoesOn(double loss, double first, double last);

// If steps restart with each epoch, continues their count, so that they do not look like restarts
// of the run. Does not change other steps. Memory is bounded.
class EpochSteps {
 public:
  // Returns the continued step. `epoch` and `loss` are the values in the row, or nullopt.
  int64_t Of(int64_t step, std::optional<int64_t> epoch, std::optional<double> loss);
  // Returns a note on how steps were counted; "" if none restarted. `name` is the name of the step.
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
