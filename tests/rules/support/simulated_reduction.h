// Reductions with a known arithmetic: sums taken hop by hop as a collective takes them, by code
// that shares nothing with the replay but the number formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/collective/case/call.h"
#include "base/half.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct ReductionSpec {
  // "ring", "halving", "tree", "double-tree", "grouped", "fp32", "exact", and arithmetics outside
  // the list: "kahan", "neumaier", "stochastic", "three-way", "random-order", "split-ring"
  std::string model = "ring";
  int ranks = 8;
  int samples = 256;
  int count = 1 << 20;
  DType dtype = DType::kBF16;        // of inputs and output
  std::string average = "none";      // "pre-divided", "pre-multiplied", "post-divided", ...
  std::string rounding = "nearest";  // "toward-zero"
  int start = 0;                     // where segment 0 begins
  int direction = 1;
  std::string segments = "count/N";  // "constant", "gloo", "chunks"
  int segment_step = 1;
  std::string order;  // of a ring, a comma list; one a channel after the other; empty: ascending
  int group = 2;
  int channels = 1;
  int chunk = 0;
  bool flush = false;
  double spread = 0.3;        // deviation over ranks, in means
  double mean = 1;            // 0: the spread alone, no common part
  double scale = 1;           // of all values
  double identical = 0;       // share of samples that are equal on all ranks
  double non_finite = 0;      // share of samples with one NaN or infinite input
  double zeros = 0;           // share of zero inputs
  int kinds = 0;              // so many different columns of inputs, over and over; 0: no two alike
  bool declare_order = true;  // metadata says `order`
  bool record_offsets = true;
  bool record_count = true;
  int seed = 1;
  // As evidence:
  std::string layer = "layers.0";
  int steps = 1;
  int model_from = 0;  // the steps before are summed in fp32
  // From step `same_from` on, in all steps but each `same_not`-th, these ranks hand in what the
  // first of them does: a comma list; "": each its own. Results stay those of the ranks' own
  // values.
  std::string same;
  int same_from = 0;
  int same_not = 0;
  bool same_constant = false;  // and it is one value throughout
  bool whole = true;           // one record speaks for all ranks; else one a rank
  bool sample = true;          // else calls alone
  bool sequence = true;        // calls are numbered
  int missing = -1;            // this rank does not report
  int meets = 0;               // > 0: that rank reports each so many-th step
  int odd_rank = -1;           // this rank states another ...
  std::string odd;             // ... "count", "dtype", "op" or "root"
  int differing_rank = -1;     // its output is another in one element
  // What was done to the results after the sum: all times `factor`, cut at `clip` in magnitude; in
  // so many elements another sign, one element times `spike`; garbage in that share of one rank's.
  double factor = 1;
  double clip = 0;
  int flipped = 0;
  double spike = 0;
  int garbage_rank = -1;
  double garbage = 0.9;
  std::string algorithm;  // as stated
  // Inputs and results are recorded in f32, before the cast to `dtype` and after it: where an input
  // is zero, it was this value before the cast.
  double before_cast = 0;
  double prescale = 1;  // as stated
  double postscale = 1;
  std::string op;  // as stated; empty: sum, or avg with `average`
  bool variable_count = false;
};

// "ranks = 16", one setting. Throws std::runtime_error on an unknown key.
void Set(ReductionSpec& spec, const std::string& key, const std::string& value);

// Of step `step`: other values and other elements in each.
ReductionCase SimulateReduction(const ReductionSpec& spec, int step = 0);

// One batch with every step, op "sum" or "avg".
v1::Batch ReductionRun(const ReductionSpec& spec);

}  // namespace plumbline::rules::testing
