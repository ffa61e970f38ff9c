// What a compressed reduction (PowerSGD, 1-bit, top-k, scaled 8 bits) leaves out, over the steps of
// a run: is it late, or lost?
//
// With error feedback each step hands over what earlier ones kept back: the residuals y - s of many
// steps telescope to what is kept back now, which stays bounded. Without it every step loses the
// same part of what persists. So the part of the gradient that persists is what is looked at: four
// windows of equal length, their residuals D and sums S by element, and of window w
//     B_w = sum_i D_w,i S_o,i / sum_i S_w,i S_o,i,   S_o the sums of the other windows,
// the share of the persistent part that window w has too much (too little, below zero). Noise is
// not in it: it is not the same in S_o as in D_w and S_w. The first window holds the start, where
// feedback has kept back but not yet returned anything, and is not judged. Windows merge as a run
// grows, so state is bounded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "base/archive.h"

namespace plumbline::rules {

class CompressionDrift {
 public:
  // One call of a step, decoded although it is compressed. Of several in a step the first counts,
  // and a step that a restart repeats does not. Must be of the elements of the first one: a dump
  // of the same offsets at each step, or a buffer that is recorded whole.
  void Take(const ReductionCase& c, int64_t step);

  // The share of the persistent part that every judged window has too much (positive) or too little
  // of: the mean, and the end of its interval (4.9 standard errors) that is nearer to 0, of the
  // window where that is nearest.
  struct Share {
    Share() {}  // NOLINT: clang 14 has no implicit one until CompressionDrift is complete
    double mean = 0;
    double nearest = 0;
    double farthest = 0;  // the interval's other end, of the window where that is farthest from 0
    uint64_t steps = 0;   // over which
    void Persist(Archive& a) { a(mean, nearest, farthest, steps); }
  };
  // As of the last time that four windows were full: after 16, 32, 64, ... steps. nullopt: it
  // cannot be said; why() is the reason.
  const std::optional<Share>& measured() const { return measured_; }
  std::string why() const;  // "short-id: sentence"

  uint64_t steps() const { return steps_; }
  uint64_t elements() const { return offsets_.size(); }
  // Steps a window must have: what a step hands over only in part arrives after several.
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
    std::vector<double> sum, residual;  // [elements]
    void Persist(Archive& a) { a(steps, sum, residual); }
  };
  struct Fit {
    double share = 0, error = 0;  // B and its standard error
    bool persists = false;        // there is a part that does
  };

  bool Places(const ReductionCase& c, std::vector<int32_t>* columns);
  void Merge();
  Fit FitOf(size_t window) const;
  std::optional<Share> Measure() const;

  std::vector<uint64_t> offsets_;  // ascending
  std::vector<Window> windows_;    // at most 4
  uint64_t length_ = kFirstLength;
  std::optional<int64_t> last_step_;
  uint64_t steps_ = 0;
  uint64_t others_ = 0;  // steps of other elements
  // What of a step's own noise is handed over in that step: sums over steps and elements of
  // y_t (s_t - s_t+1) and of s_t (s_t - s_t+1). What the steps share cancels, and what feedback
  // brings of earlier steps has nothing to do with the next one's noise.
  double along_ = 0, squares_ = 0;
  double energy_ = 0;  // of s^2
  std::vector<double> before_sum_, before_result_;
  uint64_t filled_ = 0, values_ = 0;  // results that are not zero, and all
  std::optional<Share> measured_;
};

}  // namespace plumbline::rules
