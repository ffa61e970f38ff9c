// A running sum of one rank over one step: the addends, their order, and the result, at sampled
// elements. Read from reductions of algorithm "accumulation" or from updates of optimizer
// "accumulation".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "base/dtype.h"

namespace plumbline::analysis {

struct Accumulation {
  uint32_t rank = 0;
  // Why it cannot be judged, "short-id: sentence". If it is empty, the rest is set.
  std::string problem;
  size_t adds = 0;     // K
  size_t samples = 0;  // m
  uint64_t count = 0;  // elements that the samples were drawn from; 0 if not known
  DType addend_dtype = DType::kUnspecified;
  DType dtype = DType::kUnspecified;     // of the result
  DType declared = DType::kUnspecified;  // dtype of the sum as declared (wire_dtype); unspecified
                                         // if not declared
  bool average = false;                  // the result is the sum / K
  bool has_start = false;                // the sum began at `start` instead of at the first addend
  std::vector<double> start;             // [m]; zero without has_start
  std::vector<double> addends;           // [K,m], in the order of addition
  std::vector<double> result;            // [m]
  std::vector<uint64_t> offsets;         // [m] index in C order
  // For adds observed one by one (updates). If the summaries have it, over the whole tensor.
  LostMass lost;
  bool whole_tensor = false;

  double addend(size_t k, size_t i) const { return addends[k * samples + i]; }
  // False if an addend or the result is NaN or infinite.
  bool finite(size_t i) const;
};

// Returns one per rank, by rank. Ranks without such evidence are left out. Further sums of a step
// on the same rank are ignored and counted in `more`, because they share its sampled indices. If
// the first addend of a reduction is the result of the previous one, it continues that one.
std::vector<Accumulation> DecodeAccumulations(const SiteStep& step, uint64_t* more);

}  // namespace plumbline::analysis
