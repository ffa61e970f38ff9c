// Drift per step, which is the input of the tests for growth and missed updates. Uses about 200
// bytes per step and lag. Not thread-safe.
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
  double tail_share = 0;      // |d| > ln 2
  double bounded_square = 0;  // mean of min(d^2, 1/4)
  double mean_square = 0;     // mean of d^2
  double k3 = 0;              // mean of min(k3, 1)
  int64_t version = 0;        // the trainer's version; kNoVersion if not recorded
  // The mean square that would result if each token had the mean of its log mu over all steps.
  double expected_square = 0;
};

class DriftSeries {
 public:
  static constexpr int64_t kUnknownLag = -1;
  static constexpr size_t kStrata = 12;  // the strata of DriftStrata

  // Opens a step. If a later attempt repeats a step, the step starts again. Steps of an earlier
  // attempt are ignored.
  void BeginStep(uint32_t attempt, int64_t step);
  // `k3`: min(e^d - 1 - d, 1). `stratum`: the stratum of the token's log mu
  // (DriftStrata::ProbabilityBin).
  void Add(double d, double k3, size_t stratum, int64_t lag, int64_t version);

  // Returns the points of one lag, by step. If no step has the lag, returns an empty vector.
  std::vector<DriftPoint> At(int64_t lag) const;
  // Returns the lag that most steps have. It is judged separately, so that a change of the lag does
  // not look like growth. If two lags are equally frequent, returns the smaller one. If no lag is
  // recorded, returns kUnknownLag.
  int64_t CommonLag() const;
  size_t steps() const { return steps_.size(); }

  // Between steps no step is open, so open_, cell_ and cell_lag_ are not stored.
  void Persist(Archive& a) { a(steps_); }

 private:
  struct Cell {
    uint64_t tokens = 0;
    uint64_t tail = 0;
    double bounded = 0;
    double squares = 0;
    double k3 = 0;
    int64_t version = 0;
    std::array<uint32_t, kStrata> tokens_of{};
    std::array<float, kStrata> squares_of{};
    void Persist(Archive& a) {
      a(tokens, tail, bounded, squares, k3, version, tokens_of, squares_of);
    }
  };
  struct Step {
    uint32_t attempt = 0;
    std::map<int64_t, Cell> by_lag;
    void Persist(Archive& a) { a(attempt, by_lag); }
  };

  std::map<int64_t, Step> steps_;
  Step* open_ = nullptr;
  Cell* cell_ = nullptr;  // cell of the last token's lag
  int64_t cell_lag_ = 0;
};

}  // namespace plumbline::analysis
