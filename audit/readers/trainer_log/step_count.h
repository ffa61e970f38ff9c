// Continues the step count of a log whose steps restart with each epoch or bar. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>

#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {

class StepCount {
 public:
  int64_t Of(const LogRecord& record) {
    const LogMark& mark = record.mark;
    const bool bar = record.how == LogRecord::Step::kBar;
    Pass& pass = passes_[(bar || mark.batches ? 1 : 0) + (record.evaluation ? 2 : 0)];
    const int64_t epoch = mark.epoch >= 0 ? mark.epoch : EpochInPrefix(record.prefix);
    const double loss = LossOf(record);
    const bool goes_on = epoch < 0 && !bar && !mark.batches && GoesOn(pass, mark.step, loss);
    if (goes_on || BeginsAnew(pass, record, bar, epoch)) pass.before += Length(pass, mark);
    again_ += goes_on ? 1 : 0;
    if (!pass.any) {
      pass.first = mark.step;
      pass.first_loss = loss;
    }
    pass.last_loss = loss;
    if (mark.step > pass.last) pass.stride = mark.step - pass.last;
    pass.any = true;
    pass.last = mark.step;
    pass.total = mark.total;
    if (epoch >= 0) {
      pass.epoch = epoch;
      if (pass.begins.size() < kMostEpochs) pass.begins.emplace(epoch, pass.before);
    }
    constexpr int64_t kMost = int64_t{1} << 53;
    pass.before = std::min(pass.before, kMost);
    return pass.before + mark.step;
  }

  // Returns the number of restarts of the steps that no change of the epoch explains.
  uint64_t again() const { return again_; }

 private:
  static constexpr size_t kMostEpochs = 1 << 16;
  struct Pass {
    bool any = false;
    int64_t before = 0, last = 0, total = 0, epoch = -1, stride = 0;
    int64_t first = 0;                                           // first step
    double first_loss = std::nan(""), last_loss = std::nan("");  // NaN if none was logged
    std::map<int64_t, int64_t> begins;                           // epoch -> steps before it
  };

  // Returns the first training loss of the line; NaN if it has none.
  static double LossOf(const LogRecord& record) {
    for (const LogRecord::Value& v : record.values) {
      if (v.name.ends_with("loss") || v.name.ends_with("Loss")) return v.value;
    }
    return std::nan("");
  }

  // Returns true if the step is again the first one, and the loss continues from its last value.
  static bool GoesOn(const Pass& pass, int64_t step, double loss) {
    const bool again = pass.any && step == pass.first && step <= 1 && pass.last > step + 1;
    return again && LossGoesOn(loss, pass.first_loss, pass.last_loss);
  }

  // Returns true if the number of previous steps must be added. An epoch that was seen before
  // (after a resume) keeps its offset.
  static bool BeginsAnew(Pass& pass, const LogRecord& record, bool bar, int64_t epoch) {
    const int64_t step = record.mark.step;
    if (record.mark.batches && epoch >= 0 && epoch < pass.epoch) {
      const auto known = pass.begins.find(epoch);
      if (known != pass.begins.end()) {
        pass.before = known->second;
        return false;
      }
    }
    const bool fell = pass.any && step < pass.last;
    const bool later = epoch > pass.epoch && pass.any && step <= pass.last;
    if (bar) return fell || later;
    if (record.mark.batches && epoch < 0) return fell;
    return later && pass.epoch >= 0;
  }

  // Returns the number of steps of a finished pass: its total, or else its last step (plus one if
  // steps begin at 0).
  static int64_t Length(const Pass& pass, const LogMark& mark) {
    if (mark.total > 0 && pass.total > 0) return std::max(pass.total, pass.last);
    return pass.last + (mark.step == 0 ? std::max<int64_t>(1, pass.stride) : 0);
  }

  std::array<Pass, 4> passes_;
  uint64_t again_ = 0;
};

}  // namespace plumbline::audit
