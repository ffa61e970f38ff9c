// One tensor of a checkpoint, and its history over the run's checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "base/archive.h"

namespace plumbline::analysis {

// A tensor in the current checkpoint.
struct SavedLook {
  Digest digest;
  uint64_t count = 0, zeros = 0;
  bool finite = false;
  bool floating = false;  // integers are counters
  bool varied = false;    // has two different elements
  double mean_abs = 0;    // over all elements
  std::vector<int64_t> shape;
  std::vector<float> values;      // up to about kMostKept sampled elements of a weight
                                  // or a second moment
  std::vector<uint64_t> offsets;  // their indices in C order
  uint64_t which = 0;             // hash of `offsets`
  bool matrix = false;            // has at least two axes longer than 1

  static constexpr size_t kMostKept = 512;
  // Fills the look. If `sampled` is true, keeps elements: for a square matrix with each element its
  // mirrored one, as far as the evidence has both.
  void Take(const v1::TensorState& state, bool sampled);
  bool all_zero() const { return count > 0 && zeros == count; }
  bool comparable() const { return finite && varied && !values.empty(); }
};

// A norm's gain that grows by the same factor per step. One entry for each interval.
struct GainGrowth {
  double mean_abs = 0;
  int64_t step = 0;
  std::vector<double> rates;  // newest intervals: ln(growth) per step
  std::vector<double> grown;  // ln(growth) of the same intervals
  void Persist(Archive& a) { a(mean_abs, step, rates, grown); }
};

// The history of one tensor of one rank.
struct SavedTensor {
  std::vector<std::pair<Digest, int64_t>> past;  // contents and their steps, newest last
  std::vector<float> last;                       // sampled elements of the newest checkpoint
  std::vector<float> older;  // those of the checkpoint before, if the newest is another rank's
  uint64_t which = 0;
  std::vector<int64_t> shape;
  uint64_t count = 0, zeros = 0;
  double mean_abs = 0;
  bool varied = false, finite = false;
  bool moved = false;            // has other bits than in the checkpoint before
  uint64_t steady = 0;           // consecutive intervals in which it changed only a little
  uint64_t without_moments = 0;  // consecutive intervals in which it changed and its moments were 0
  GainGrowth growth;
  bool reported = false;

  static constexpr size_t kMostPast = 64;
  void Keep(const SavedLook& look, int64_t step);
  // Returns the step of an earlier content with these bits that was followed by another content.
  std::optional<int64_t> StepOf(const Digest& digest) const;
  void Persist(Archive& a) {
    a(past, last, older, which, shape, count, zeros, mean_abs, varied, finite, moved, steady,
      without_moments, growth, reported);
  }
};

// Returns Pearson's correlation of two samples of one length; 0 if one of them is constant.
double CorrelationOf(const std::vector<float>& a, const std::vector<float>& b);
// Returns the correlation of `before` with `now`, both of a square matrix, with the mirrored
// element in place of each; 0 if fewer than 64 elements have a mirrored one in the sample.
double MirroredCorrelation(const std::vector<float>& before, const SavedLook& now);
// Returns true if `now` is not `before` times one factor (as weight decay alone makes it).
bool MovedBeyondDecay(const std::vector<float>& before, const std::vector<float>& now);

}  // namespace plumbline::analysis
