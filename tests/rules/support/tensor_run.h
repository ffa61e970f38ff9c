// Simulated tensors at sites of a model, healthy or with an injected fault: the injector of the
// rules on probabilities, positions, formats, replicas and non-finite values.
#pragma once

#include <string>

#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct TensorRunSpec {
  int layers = 1;  // sites layers.0.x ..., in this order
  int ranks = 1;
  int steps = 1;
  int rows = 64;
  int columns = 64;
  std::string role = "weight";
  std::string op;                    // of the site; empty: the role
  DType dtype = DType::kF32;         // as stored
  DType used = DType::kUnspecified;  // as computed, first rounded to this dtype; unspecified: dtype
  DType target_format = DType::kUnspecified;
  // normal, cubed (a normal's cube: long tails), constant, softmax, positions
  std::string content = "normal";
  double sd = 1;
  double mean = 0;
  double growth = 1;  // of the deviation from layer to layer
  bool sample = true;
  int max_samples = 1 << 20;
  bool ordered = true;  // observations are numbered
  int seed = 1;
  // softmax of normal logits of this deviation; sums kept in `sum_dtype`
  double logit_sd = 1;
  DType sum_dtype = DType::kF32;
  bool causal = false;
  double dropout = 0;
  int top_k = 0;             // keeps the k largest
  bool renormalise = false;  // after top_k
  int masked_rows = 0;       // all -inf: NaN, or 0 with masked_zero
  bool masked_zero = false;
  int shard = 1;            // only the first columns / shard are recorded
  double factor = 1;        // on the finished rows
  double floor = 0;         // clamp(min)
  bool sink = false;        // one more logit that is left out of the row
  bool log_domain = false;  // exp of fp32 logarithms
  bool sigmoid = false;
  // positions: start + i, times step
  double start = 0;
  double step = 1;
  int document = 0;    // restarts every n positions
  int pad_left = 0;    // ones
  int pad_right = 0;   // repeats the last position
  bool stops = false;  // a running count in the dtype
  int repeat = 1;      // how often each position is repeated
  // copies of one tensor
  std::string replicas;
  bool copies = false;        // all ranks have rank 0's values
  bool copies_first = false;  // only in the first step
  bool moves = true;          // values change from step to step
  int odd_rank = -1;
  int odd_step = 0;  // from this step on
  int flip_element = 0;
  int flip_bit = -1;  // -1: every value of the odd rank differs
  // non-finite values, from (step, layer) on at one rank; from the next step on everywhere
  std::string poison;  // nan, inf, ninf or empty
  int poison_step = 0;
  int poison_layer = 0;
  int poison_rank = 0;
  bool floods = true;
  int poison_every = 0;       // every n-th value, of every tensor
  std::string loss_scale;     // one scalar a step, separated by spaces
  int look_every = 1;         // tensors are observed in each n-th step
  int loss_nan_step = -1;     // rank 0 logs a loss each step, NaN from this one on; -1: no loss
  bool loss_of_all = false;   // every rank logs it
  std::string loss = "loss";  // its name
  // each rank reports this series each step: one number for all its copies. If "", there is none.
  // checksum_nan_rank reports NaN.
  std::string checksum;
  int checksum_every = 1;
  int checksum_nan_rank = -1;
  // a format with a scale per block: a name of BlockFormats(). Its scales are recorded by the
  // format's rule, times `recorded`. If that is 0, they are not recorded.
  std::string blocks;
  double recorded = 0;
  int outlier_every = 0;  // every n-th value is `outlier` times as large
  double outlier = 100;
};

void Set(TensorRunSpec& spec, const std::string& key, const std::string& value);

// Returns one batch with every rank and step.
v1::Batch TensorRun(const TensorRunSpec& spec);

}  // namespace plumbline::rules::testing
