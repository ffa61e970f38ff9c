// Drift step by step: the input to the tests for growth and missed updates. About 200 bytes per
// step and lag. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/drift/moments.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One trainer step's tokens of one version lag.
struct DriftPoint {
  int64_t step = 0;
  uint32_t attempt = 0;
  double tokens = 0;
  double tail_share = 0;       // |d| > ln 2
  double bounded_square = 0;   // mean of min(d^2, 1/4)
  double mean_square = 0;      // of d
  int64_t version = 0;         // the trainer's version; kNoVersion if not recorded
  double expected_square = 0;  // mean_square if each token had that of its log mu in all steps
};

class DriftSeries {
 public:
  static constexpr int64_t kUnknownLag = -1;
  static constexpr size_t kStrata = 12;  // those of DriftStrata

  // Opens a step. If a later attempt repeats a step, the step starts again. Steps of an earlier
  // attempt are ignored.
  void BeginStep(uint32_t attempt, int64_t step);
  // `stratum`: of the token's log mu (DriftStrata::ProbabilityBin).
  void Add(double d, size_t stratum, int64_t lag, int64_t version);

  // Returns the points of one lag, by step. If no step has the lag, returns an empty vector.
  std::vector<DriftPoint> At(int64_t lag) const;
  // Returns the lag that most steps have. It is judged separately, so that a change of the lag does
  // not look like growth. If two are equally common, returns the smaller one. If none is recorded,
  // returns kUnknownLag.
  int64_t CommonLag() const;
  size_t steps() const { return steps_.size(); }

  // Between steps no step is open: open_, cell_ and cell_lag_ are set by the next one.
  void Persist(Archive& a) { a(steps_); }

 private:
  struct Cell {
    uint64_t tokens = 0;
    uint64_t tail = 0;
    double bounded = 0;
    double squares = 0;
    int64_t version = 0;
    std::array<uint32_t, kStrata> tokens_of{};
    std::array<float, kStrata> squares_of{};
    void Persist(Archive& a) { a(tokens, tail, bounded, squares, version, tokens_of, squares_of); }
  };
  struct Step {
    uint32_t attempt = 0;
    std::map<int64_t, Cell> by_lag;
    void Persist(Archive& a) { a(attempt, by_lag); }
  };

  std::map<int64_t, Step> steps_;
  Step* open_ = nullptr;
  Cell* cell_ = nullptr;  // of the last token's lag
  int64_t cell_lag_ = 0;
};

}  // namespace plumbline::analysis
