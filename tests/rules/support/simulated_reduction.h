// Reductions with a known arithmetic: sums computed hop by hop as in a collective, by code that
// shares only the number formats with the replay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/collective/case/call.h"
#include "base/half.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

struct ReductionSpec {
  // "ring", "halving", "tree", "double-tree", "grouped", "fp32", "exact", and unlisted arithmetics:
  // "kahan", "neumaier", "stochastic", "three-way", "random-order", "split-ring"
  std::string model = "ring";
  int ranks = 8;
  int samples = 256;
  int count = 1 << 20;
  DType dtype = DType::kBF16;        // of inputs and output
  std::string average = "none";      // "pre-divided", "pre-multiplied", "post-divided", ...
  std::string rounding = "nearest";  // "toward-zero"
  int start = 0;                     // start of segment 0
  int direction = 1;
  std::string segments = "count/N";  // "constant", "gloo", "chunks"
  int segment_step = 1;
  std::string order;  // of a ring, a comma list; one per channel in sequence; empty: ascending
  int group = 2;
  int channels = 1;
  int chunk = 0;
  bool flush = false;
  double spread = 0.3;        // deviation over ranks, in means
  double mean = 1;            // 0: only the spread, no common part
  double scale = 1;           // of all values
  double identical = 0;       // share of samples that are equal on all ranks
  double non_finite = 0;      // share of samples with one NaN or infinite input
  double zeros = 0;           // share of zero inputs
  int kinds = 0;              // number of different input columns, repeated; 0: all differ
  bool declare_order = true;  // metadata contains `order`
  bool record_offsets = true;
  bool record_count = true;
  int seed = 1;
  // As evidence:
  std::string layer = "layers.0";
  int steps = 1;
  int model_from = 0;  // earlier steps are summed in fp32
  // From step `same_from` on, except in each `same_not`-th step, these ranks pass in the values of
  // the first of them: a comma list. "": each has its own. Results stay those of the ranks' own
  // values.
  std::string same;
  int same_from = 0;
  int same_not = 0;
  bool same_constant = false;  // ... and all elements have one value
  bool whole = true;           // one record covers all ranks; else one per rank
  bool sample = true;          // else calls only
  bool sequence = true;        // calls are numbered
  int missing = -1;            // this rank does not report
  int meets = 0;               // if > 0: that rank reports each n-th step
  int odd_rank = -1;           // this rank declares another ...
  std::string odd;             // ... "count", "dtype", "op" or "root"
  int differing_rank = -1;     // its output differs in one element
  // Changes of the results after the sum: all times `factor`, cut at `clip` in magnitude, another
  // sign in `flipped` elements, one element times `spike`, garbage in a share of one rank's.
  double factor = 1;
  double clip = 0;
  int flipped = 0;
  double spike = 0;
  int garbage_rank = -1;
  double garbage = 0.9;
  std::string algorithm;  // as declared
  // Inputs and results are recorded in f32, before the cast to `dtype` and after it. If an input is
  // zero, it was this value before the cast.
  double before_cast = 0;
  double prescale = 1;  // as declared
  double postscale = 1;
  std::string op;  // as declared; empty: sum, or avg with `average`
  bool variable_count = false;
};

// Sets one field, such as "ranks = 16". Throws std::runtime_error if the key is unknown.
void Set(ReductionSpec& spec, const std::string& key, const std::string& value);

// Returns the reduction of step `step`; values and elements differ in each step.
ReductionCase SimulateReduction(const ReductionSpec& spec, int step = 0);

// Returns one batch with every step, op "sum" or "avg".
v1::Batch ReductionRun(const ReductionSpec& spec);

}  // namespace plumbline::rules::testing
