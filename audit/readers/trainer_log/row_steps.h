// Steps of printed dictionaries that state an epoch and no step (Hugging Face's console), from the
// totals that the log states at its beginning or at its end, or from progress bars around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline::audit {

// Not thread-safe.
class RowSteps {
 public:
  // From the first bytes of a log and its last ones. nullopt: the totals are not there ("Total
  // optimization steps = 2,000" and "Num Epochs = 2", or the `train_runtime` and
  // `train_steps_per_second` of the end), or they and the epochs of the rows fit more than one
  // course of steps.
  static std::optional<RowSteps> Of(std::string_view head, std::string_view tail);

  // The step of the next row. `training`: it has a training loss; others belong to a row near them.
  int64_t Next(double epoch, bool training);

  double steps_per_epoch() const { return per_epoch_; }
  int64_t stride() const { return stride_; }  // steps from row to row; 0: not regular

 private:
  double Tolerance(double epoch) const;  // steps

  double per_epoch_ = 0;
  double error_ = 0;  // of it, relative
  double grain_ = 0;  // of the epochs as they are printed
  int64_t stride_ = 0;
  bool first_ = false;  // a row for step 1, before the regular ones
  int64_t last_ = 0;
};

// Steps of rows that are printed between two drawings of a progress bar. The one above may lag, as
// a bar is drawn ten times a second at most; the one below may be of a later step.
class BetweenBars {
 public:
  int64_t Step(int64_t above, int64_t below, bool training);

 private:
  int64_t last_ = 0, stride_ = 0;  // of the training's rows
};

}  // namespace plumbline::audit
