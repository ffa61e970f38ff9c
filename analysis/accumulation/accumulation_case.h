// A running sum of one rank over one step: what was added, in which order, and what came out, at
// sampled elements. Read from reductions of algorithm "accumulation" or from updates of optimizer
// "accumulation".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "base/dtype.h"

namespace plumbline::rules {

struct Accumulation {
  uint32_t rank = 0;
  // Why it cannot be judged, "short-id: sentence"; empty: the rest is filled.
  std::string problem;
  size_t adds = 0;     // K
  size_t samples = 0;  // m
  uint64_t count = 0;  // elements that the samples were drawn from; 0: not known
  DType addend_dtype = DType::kUnspecified;
  DType dtype = DType::kUnspecified;  // of the result
  DType declared =
      DType::kUnspecified;        // of the sum, as declared (wire_dtype); unspecified: not said
  bool average = false;           // the result is the sum / K
  bool has_start = false;         // the sum began at `start`, not at the first addend
  std::vector<double> start;      // [m]; zero without has_start
  std::vector<double> addends;    // [K,m], in the order of adding
  std::vector<double> result;     // [m]
  std::vector<uint64_t> offsets;  // [m] index in C order
  // Of the adds observed one by one (updates); over the whole tensor where the summaries say it.
  LostMass lost;
  bool whole_tensor = false;

  double addend(size_t k, size_t i) const { return addends[k * samples + i]; }
  // A NaN or an infinity in what was added or came out.
  bool finite(size_t i) const;
};

// One a rank, by rank; ranks without such evidence are left out. Further sums of a step on the
// same rank (they share its sampled indices, so they are no fresh draws) are left out and counted
// in `more`; reductions whose first addend is the result of the one before continue it.
std::vector<Accumulation> DecodeAccumulations(const SiteStep& step, uint64_t* more);

}  // namespace plumbline::rules
