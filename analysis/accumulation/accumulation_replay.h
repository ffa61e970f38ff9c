// Finds the arithmetic of a running sum: every candidate is replayed on the samples and compared
// bit by bit. Also extrapolates the same data to a longer sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/accumulation/accumulation_case.h"
#include "base/archive.h"
#include "base/half.h"

namespace plumbline::analysis {

// Adds the addends in sequence, rounding the sum into `dtype` each time. At the end it is divided
// (an average) and rounded into the result's dtype.
struct AccumulationModel {
  DType dtype = DType::kUnspecified;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool via_fp32 = false;    // each sum is first rounded to f32, as in kernels that add in registers
  bool cast_first = false;  // addends are rounded into dtype before the addition

  std::string text() const;  // "bf16, one after the other"
  void Persist(Archive& a) { a(dtype, rounding, via_fp32, cast_first); }
  bool half() const { return FormatOf(dtype).precision < 24; }
};

// Returns the result for sample i.
double Replay(const Accumulation& a, const AccumulationModel& model, size_t i);

// Returns true if there is a finite sample and the replay equals the result on all of them.
bool Confirms(const Accumulation& a, const AccumulationModel& model);

// Counts adds that do not change the sum, over the finite samples, in a replay.
LostMass ReplayLost(const Accumulation& a, const AccumulationModel& model);

// The results of the candidates on the samples of one sum.
struct AccumulationMatch {
  uint64_t samples = 0;  // finite
  // A candidate equals the result on all finite samples, and every class of candidates of another
  // dtype or rounding differs from it on at least `needed` samples: ln(C 1e6), C classes.
  bool accepted = false;
  bool indistinguishable = false;  // one equals the result everywhere, but others almost do too
  AccumulationModel model;         // the first that equals the result, else the best
  uint64_t matches = 0;
  uint64_t discriminating =
      0;                  // smallest number of samples on which another family differs from `model`
  std::string runner_up;  // the best model of another family
  uint64_t runner_up_matches = 0;
  void Persist(Archive& a) {
    a(samples, accepted, indistinguishable, model, matches, discriminating, runner_up);
    a(runner_up_matches);
  }
};
AccumulationMatch MatchAccumulation(const Accumulation& a);

// Simulates longer sums of the same kind: each sampled element's own addends, drawn again (with
// replacement, by a fixed hash). K is doubled up to 2,048, at least twice.
struct LongerSum {
  uint64_t adds = 0;
  double mean = 0;  // ulp, with 4.9 standard errors
  double half_width = 0;
  double relative = 0;  // sum of the results over the sum of the exact sums, minus 1
  void Persist(Archive& a) { a(adds, mean, half_width, relative); }
};
struct LongerSums {
  std::vector<LongerSum> tried;  // up to the first that breaks
  bool breaks = false;           // the last one's interval exceeds the budget
  void Persist(Archive& a) { a(tried, breaks); }
};
LongerSums Extrapolate(const Accumulation& a, const AccumulationModel& model);

}  // namespace plumbline::analysis
