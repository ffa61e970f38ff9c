// Simulated matrix products of a run, with one arithmetic or a changing one: the injector of the
// product rules.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct MatmulRunSpec {
  int samples = 64;
  int inner = 256;
  DType input = DType::kBF16;
  DType output = DType::kF32;
  std::string values = "normal";  // positive, spread, cancelling, subnormal, filled, integers
  bool addend = false;
  // exact, sequential, pairwise, aligned, kahan; unlisted ones: lanes, ten-bits
  std::string sum = "aligned";
  DType accumulator = DType::kF32;
  std::string rounding = "toward-zero";  // nearest
  bool fused = false;
  int fraction_bits = 25;
  int block = 16;
  int promote = 0;
  int kept = 0;
  double scale = 0;  // of D; 0 means none
  bool declare_scale = true;
  int scale_block = 0;  // products that share a scale; `scale_power`: powers of two
  bool scale_power = true;
  std::string scaled = "sums";  // factors
  std::string store;            // stochastic, toward-zero
  std::string output_rounding;
  int part = 0;
  std::string cut;  // tf32-nearest, tf32-away, tf32-zero, bf16-nearest
  DType declared = DType::kUnspecified;
  std::string input_format;
  std::string library;
  int rows = 0, columns = 0;
  int ranks = 1;
  int steps = 1;
  // From this step on, or on this rank: `changed_bits` fraction bits, `changed_sum` another sum,
  // `changed_samples` samples.
  int change_step = -1;
  int change_rank = -1;
  int changed_bits = 0;
  int changed_samples = 0;
  std::string changed_sum, changed_library;
  bool resumed = false;  // from change_step on it is the run's second attempt
  int poison_every = 0;  // every n-th sample contains a NaN, the next one an infinite factor
  bool sample = true;
  bool only_call = false;  // the record of a call whose arguments alone were seen
  int seed = 1;
};

void Set(MatmulRunSpec& spec, const std::string& key, const std::string& value);

// Returns one batch per attempt, layer "layers.0.qkv", op "matmul".
std::vector<v1::Batch> MatmulRun(const MatmulRunSpec& spec);

}  // namespace plumbline::rules::testing
