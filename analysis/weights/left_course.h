// Tests gradients that the loss of another optimizer has left before the optimizer's own backward
// pass adds to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Series that run.watch reports if a backward pass adds to gradients that the pass for another
// optimizer has left.
inline constexpr char kLeftCosine[] = "left/cosine";  // between what was left and what is added
inline constexpr char kLeftShare[] = "left/share";    // norm of the gradient that was left, divided
                                                      // by the norm of the added one

// Of one rank. Not thread-safe.
class LeftCourse {
 public:
  static bool Reads(std::string_view series);

  void Take(int64_t step, std::string_view series, double value);

  // Returns a finding, once, when most of the steps that were looked at, and enough of them, have
  // gradients that oppose each other.
  std::optional<v1::Verdict> Judge(uint32_t rank);

  // Returns the verdict at the end of the run, if there was no finding.
  std::optional<v1::Verdict> Rest(uint32_t rank) const;

  // Between steps cosine_ is empty.
  void Persist(Archive& a) {
    a(looks_, opposed_, poisoned_, step_first_, step_last_, sum_, judged_);
  }

 private:
  std::optional<double> cosine_;
  uint64_t looks_ = 0, opposed_ = 0, poisoned_ = 0;
  int64_t step_first_ = 0, step_last_ = 0;
  double sum_ = 0;  // of the cosines
  bool judged_ = false;
};

}  // namespace plumbline::analysis
