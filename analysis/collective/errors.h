// Computes the errors of a collective's results, and of other arithmetics on the same data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/replay.h"
#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Returns the errors of the recorded outputs at all samples. Addends are the inputs, rounded to the
// wire's dtype. For an average, the exact result includes the division. Unit:
// BiasUnit(c.result_dtype()).
SumErrors ErrorsOfOutputs(const ReductionCase& c);

// Mean relative error over samples, weighted by size: sum y sign(s) / sum |s| - 1, with its
// standard error (of a ratio). NaN without samples.
struct RelativeError {
  double mean = 0;
  double standard_error = 0;
  uint64_t samples = 0;
};
class RelativeErrorSum {
 public:
  void Take(const ReductionCase& c);
  RelativeError Get() const;
  void Persist(Archive& a) { a(n_, d_, s_, dd_, ds_, ss_); }

 private:
  uint64_t n_ = 0;
  double d_ = 0;   // sum of y sign(s) - |s|
  double s_ = 0;   // sum of |s|
  double dd_ = 0;  // sums of squares and products
  double ds_ = 0;
  double ss_ = 0;
};

// Computes the result of one arithmetic and order for one column of addends.
struct SumMachine {
  Arithmetic arithmetic;
  enum class Order : uint8_t { kRing, kTree } order = Order::kRing;
  const SumTree* tree = nullptr;  // set for kTree
  int ranks = 0;                  // divisor of an average

  // If `largest` is given, sets it to the largest magnitude of all partial sums. `lost` is the
  // number of additions that changed nothing, only for chains.
  double Run(std::span<const double> addends, int start, double* largest = nullptr,
             LostMass* lost = nullptr) const;
};

// The error of another arithmetic on the same inputs.
struct WhatIf {
  std::string model;  // "fp32 accumulation", "bf16 tree", ...
  uint64_t samples = 0;
  double mean = 0;  // mean error, in the unit of precision/collective-sum (ulp of the result)
  double rms = 0;
  double misrounded = 0;
  // Share of sum |x| whose addition changed nothing; NaN if the order is no chain.
  double lost_mass = 0;
  void Persist(Archive& a) { a(model, samples, mean, rms, misrounded, lost_mass); }
};
std::vector<WhatIf> WhatIfTable(const ReductionCase& c, std::span<const int32_t> columns);

}  // namespace plumbline::analysis
