// Which of a table's columns is the step, by the names that people use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::audit {

// 0 is asked first: step, _step, global_step, iteration, iter, ... in any case; -1: no such name.
int StepNameRank(std::string_view name);
// Whether such a name may begin with this word: "global" of "global step".
bool BeginsStepName(std::string_view word);
// A step within an object of a record: "fields/step", "record/extra/step".
bool IsNestedStep(std::string_view name);
// An epoch is a step where there is no other.
bool IsEpochName(std::string_view name);
// A batch within an epoch: "batch", "batch_idx".
bool IsBatchName(std::string_view name);
// A word of the name that only trainers use: loss, lr, perplexity, ...
bool HasTrainingWord(std::string_view name);

// Picks the step's column by the first records of a file. Of two that are there alike, the one that
// falls back less often (a step within the epoch does), then the one that stands still less often
// (of micro-batches), then the one that is called global, then the better name.
class StepChoice {
 public:
  explicit StepChoice(std::string wanted) : wanted_(std::move(wanted)) {}

  // Every name that may be it; others are passed over.
  bool MayBe(std::string_view name) const;
  // What a record has there.
  void Offer(std::string_view name, double value);
  // Nothing: no column has whole numbers.
  std::optional<std::string> Best() const;
  const std::string& wanted() const { return wanted_; }
  // Where Best is an epoch that many rows have: the batch within it; empty: there is none.
  std::string Batch() const;
  // The epoch that stands beside the step; empty: there is none.
  std::string Epoch() const;

 private:
  struct Seen {
    uint64_t whole = 0, other = 0, falls = 0, stays = 0;
    double last = -1;
    // It counts nothing: a total, a setting.
    bool still() const { return whole > 1 && stays + 1 == whole; }
  };
  static constexpr size_t kMostCandidates = 64;

  std::string wanted_;
  std::map<std::string, Seen, std::less<>> seen_;
};

// Steps are back at the first one, which is 0 or 1. True if the loss, whose first and last values
// are given, goes on: a new epoch of the same run. In a run that was begun again it would be near
// the first value. NaN after NaN goes on.
bool LossGoesOn(double loss, double first, double last);

// Steps that begin anew with each epoch are counted on: they would seem to be restarts else. Of
// steps that do not, nothing changes. Memory is bounded.
class EpochSteps {
 public:
  // `epoch` and `loss` of the row; nullopt: it has none.
  int64_t Of(int64_t step, std::optional<int64_t> epoch, std::optional<double> loss);
  // How the steps were counted on; empty: none began anew. `name`: of the step.
  std::string Note(std::string_view name) const;

 private:
  static constexpr size_t kMostEpochs = 1 << 16;

  int64_t Length(int64_t step) const;

  std::map<int64_t, int64_t> begins_;  // epoch -> steps before it
  std::optional<int64_t> epoch_;
  int64_t before_ = 0, first_ = -1, last_ = 0, stride_ = 1;
  std::optional<double> first_loss_;
  double last_loss_ = 0;
  bool counted_ = false;  // some began anew with an epoch
  uint64_t again_ = 0;    // began anew without
};

}  // namespace plumbline::audit
