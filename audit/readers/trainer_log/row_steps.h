// Finds the steps of printed dictionaries that state an epoch but no step (Hugging Face's console),
// from the totals at the log's beginning or end, or from progress bars around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace plumbline::audit {

// Not thread-safe.
class RowSteps {
 public:
  // Reads the first and the last bytes of a log. Returns nullopt if the totals are missing ("Total
  // optimization steps = 2,000" and "Num Epochs = 2", or the `train_runtime` and
  // `train_steps_per_second` at the end), or if they and the epochs of the rows fit several courses
  // of steps.
  static std::optional<RowSteps> Of(std::string_view head, std::string_view tail);

  // Returns the step of the next row. `training`: it has a training loss. Other rows belong to a
  // row near them.
  int64_t Next(double epoch, bool training);

  double steps_per_epoch() const { return per_epoch_; }
  int64_t stride() const { return stride_; }  // steps between rows; 0 if not regular

 private:
  double Tolerance(double epoch) const;  // in steps

  double per_epoch_ = 0;
  double error_ = 0;  // relative error of per_epoch_
  double grain_ = 0;  // last printed digit of the epochs
  int64_t stride_ = 0;
  bool first_ = false;  // a row for step 1 precedes the regular ones
  int64_t last_ = 0;
};

// Counts rows that state an epoch but no step. If the epoch falls back (a second start in one log,
// a resume), so does the count.
class CountedEpochs {
 public:
  // Returns the number of rows before the one that is next, which is `count` + 1 in the log.
  int64_t Before(double epoch, int64_t count);

 private:
  static constexpr size_t kMost = 1 << 16;
  std::vector<std::pair<double, int64_t>> rows_;  // epoch, number of the row; both rise
  int64_t back_ = 0;                              // rows by which the count has fallen back
};

// Finds the steps of rows that are printed between two redraws of a progress bar. The bar above may
// lag, because a bar is redrawn ten times a second at most. The bar below may be of a later step.
class BetweenBars {
 public:
  int64_t Step(int64_t above, int64_t below, bool training);

 private:
  int64_t last_ = 0, stride_ = 0;  // of the training's rows
};

}  // namespace plumbline::audit
