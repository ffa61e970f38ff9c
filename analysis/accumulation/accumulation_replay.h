// Which arithmetic a running sum was kept in: every candidate is replayed on the samples and
// compared bit by bit. And what the same data would do in a longer sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/accumulation/accumulation_case.h"
#include "base/archive.h"
#include "base/half.h"

namespace plumbline::rules {

// Addends are added one after the other, the sum rounded into `dtype` at each; at the end it is
// divided (an average) and rounded into the result's dtype.
struct AccumulationModel {
  DType dtype = DType::kUnspecified;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool via_fp32 = false;    // each sum is rounded to f32 first, as kernels do that add in registers
  bool cast_first = false;  // addends are rounded into dtype before they are added

  std::string text() const;  // "bf16, one after the other"
  void Persist(Archive& a) { a(dtype, rounding, via_fp32, cast_first); }
  bool half() const { return FormatOf(dtype).precision < 24; }
};

// The result for sample i.
double Replay(const Accumulation& a, const AccumulationModel& model, size_t i);

// Does the replay equal the result on every finite sample, and is there one?
bool Confirms(const Accumulation& a, const AccumulationModel& model);

// Adds that leave the sum as it is, of the finite samples, when replayed.
LostMass ReplayLost(const Accumulation& a, const AccumulationModel& model);

// What the candidates say of the samples of one sum.
struct AccumulationMatch {
  uint64_t samples = 0;  // finite
  // Accepted: a candidate equals the result on all finite samples, and every class of candidates of
  // another dtype or rounding differs from it on `needed` samples or more: ln(C 1e6), C classes.
  bool accepted = false;
  bool indistinguishable = false;  // one equals the result everywhere, but others nearly do too
  AccumulationModel model;         // the first that equals the result, else the best
  uint64_t matches = 0;
  uint64_t discriminating = 0;  // least number on which another family differs from `model`
  std::string runner_up;        // the best of another family
  uint64_t runner_up_matches = 0;
  void Persist(Archive& a) {
    a(samples, accepted, indistinguishable, model, matches, discriminating, runner_up);
    a(runner_up_matches);
  }
};
AccumulationMatch MatchAccumulation(const Accumulation& a);

// The same addends' kind in longer sums: each sampled element's own addends, drawn again (with
// replacement, by a fixed hash), K doubled up to 2,048 at least twice.
struct LongerSum {
  uint64_t adds = 0;
  double mean = 0;  // ulp, and its 4.9 standard errors
  double half_width = 0;
  double relative = 0;  // sum of the results over the sum of the exact sums, less 1
  void Persist(Archive& a) { a(adds, mean, half_width, relative); }
};
struct LongerSums {
  std::vector<LongerSum> tried;  // up to the first that breaks
  bool breaks = false;           // the last one's interval lies beyond the budget
  void Persist(Archive& a) { a(tried, breaks); }
};
LongerSums Extrapolate(const Accumulation& a, const AccumulationModel& model);

}  // namespace plumbline::rules
