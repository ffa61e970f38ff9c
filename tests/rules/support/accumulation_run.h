// Simulated running sums of gradients over the micro-batches of a step, as probes record them.
#pragma once

#include <cstdint>
#include <string>

#include "base/half.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct AccumulationSpec {
  std::string evidence = "reduction";  // or "update": one per micro-batch
  int ranks = 1;
  int steps = 1;
  int adds = 64;  // micro-batches
  int samples = 256;
  uint64_t count = 1000000;  // elements of the tensor; 0: not declared
  double mean = 1;           // addends are c (mean + spread z), z normal
  double spread = 0.5;
  bool one_mean = false;        // c is 1, else log-normal over elements with either sign
  DType dtype = DType::kBF16;   // of the running sum
  DType result = DType::kBF16;  // of the recorded result
  DType addend = DType::kBF16;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool average = false;
  bool reversed = false;  // recorded in another order than that of the additions
  int start_rank = 0;     // ranks below it keep their sum in f32
  std::string poison;     // "nan": one addend in five of the elements; "all": every element
  int drop_call = -1;     // micro-batch whose values are missing
  int change_after = -1;  // the sum is scaled after this micro-batch
  bool values = true;     // if false, summaries only
  int segments = 1;       // reductions: number of pieces in which the sum is recorded
  // What each step after the first finds of the previous step's gradient: "stale" (all of it),
  // "cleared", "changed" (halved), "twin" (another one). If "", leftovers are not observed.
  // Poisoned sums leave poison.
  std::string left;
  // If "on", each step after the first begins with the previous result, at the same elements. If
  // "twin", with a value of its own there. If "", each step has its own elements.
  std::string carries;
  int left_samples = 128;
  double left_zeros = 0;     // share of the elements that are zero at the end of the step
  int left_stale_rank = -1;  // only this rank keeps its leftovers; -1: all do
  int left_first = 1;        // first step with leftovers; before it they are cleared
  std::string layer = "layers.3.weight";
  uint64_t seed = 1;
};

// Sets one field, such as "adds = 64". Throws std::runtime_error if the key is unknown.
void Set(AccumulationSpec& spec, const std::string& key, const std::string& value);

// Returns one batch with every rank and step, op "accumulation".
v1::Batch AccumulationRun(const AccumulationSpec& spec);

}  // namespace plumbline::rules::testing
