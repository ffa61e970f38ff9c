// Tests over the steps of a run whether the values that a compressed reduction (PowerSGD, 1-bit,
// top-k, scaled 8 bits) omits are delayed or lost.
//
// With error feedback, each step passes on the values that earlier steps kept back. The residuals y
// - s of many steps then telescope to the values that are kept back now, which are bounded. Without
// error feedback, every step loses the same part of the persistent gradient. So the test measures
// the persistent part. It uses four windows of equal length, with residuals D and sums S per
// element. For window w,
//     B_w = sum_i D_w,i S_o,i / sum_i S_w,i S_o,i,   S_o the sums of the other windows,
// is the share of the persistent part by which window w has too much (or too little, if below
// zero). Noise does not contribute, because the noise in S_o is independent of that in D_w and S_w.
// The first window contains the start, where feedback has kept back values but not returned any
// yet, so it is not judged. Windows merge as a run grows, so the state is bounded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "base/archive.h"

namespace plumbline::analysis {

class CompressionDrift {
 public:
  // Takes one call of a step, which is decoded although it is compressed. Uses only the first call
  // of a step, and ignores steps that a restart repeats. The call must have the elements of the
  // first call: a dump of the same offsets in each step, or a fully recorded buffer.
  void Take(const ReductionCase& c, int64_t step);

  // The share of the persistent part by which every judged window has too much (positive) or too
  // little. It has the mean and `nearest`. An interval has 4.9 standard errors. `nearest` is the
  // interval end closest to 0, over all windows.
  struct Share {
    Share() {}  // NOLINT: clang 14 has no implicit one until CompressionDrift is complete
    double mean = 0;
    double nearest = 0;
    double farthest = 0;  // the interval end farthest from 0, over all windows
    uint64_t steps = 0;   // number of steps covered
    void Persist(Archive& a) { a(mean, nearest, farthest, steps); }
  };
  // Returns the result at the time when four windows were last full: after 16, 32, 64, ... steps.
  // If it is not known, returns nullopt, and why() returns the reason.
  const std::optional<Share>& measured() const { return measured_; }
  std::string why() const;  // "short-id: sentence"

  uint64_t steps() const { return steps_; }
  uint64_t elements() const { return offsets_.size(); }
  // Returns the number of steps that a window must have. If a step passes on only a part, the rest
  // arrives after several steps.
  uint64_t needed() const;

  void Persist(Archive& a) {
    a.Version(1);
    a(offsets_, windows_, length_, last_step_, steps_, others_, along_, squares_, energy_, filled_);
    a(values_, before_sum_, before_result_, measured_);
  }

  static constexpr size_t kMostElements = 512;
  static constexpr uint64_t kFirstLength = 4;

 private:
  struct Window {
    uint64_t steps = 0;
    std::vector<double> sum, residual;  // sums and residuals of [elements]
    void Persist(Archive& a) { a(steps, sum, residual); }
  };
  struct Fit {
    double share = 0, error = 0;  // B and its standard error
    bool persists = false;        // true if a persistent part exists
  };

  bool Places(const ReductionCase& c, std::vector<int32_t>* columns);
  void Merge();
  Fit FitOf(size_t window) const;
  std::optional<Share> Measure() const;

  std::vector<uint64_t> offsets_;  // offsets of the elements, ascending
  std::vector<Window> windows_;    // at most 4 windows
  uint64_t length_ = kFirstLength;
  std::optional<int64_t> last_step_;
  uint64_t steps_ = 0;
  uint64_t others_ = 0;  // number of steps with other elements
  // To estimate the share of a step's own noise that it passes on: sums over steps and elements of
  // y_t (s_t - s_t+1) and of s_t (s_t - s_t+1). The part common to the steps cancels, and values
  // that feedback adds from earlier steps are independent of the noise of the next step.
  double along_ = 0, squares_ = 0;
  double energy_ = 0;  // sum of s^2
  std::vector<double> before_sum_, before_result_;
  uint64_t filled_ = 0, values_ = 0;  // number of non-zero results, and of all results
  std::optional<Share> measured_;
};

}  // namespace plumbline::analysis
