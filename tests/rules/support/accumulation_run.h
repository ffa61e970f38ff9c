// Running sums of gradients over the micro-batches of a step, as probes record them.
#pragma once

#include <cstdint>
#include <string>

#include "base/half.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct AccumulationSpec {
  std::string evidence = "reduction";  // or "update": one a micro-batch
  int ranks = 1;
  int steps = 1;
  int adds = 64;  // micro-batches
  int samples = 256;
  uint64_t count = 1000000;  // elements of the tensor; 0: not said
  double mean = 1;           // addends are c (mean + spread z), z normal
  double spread = 0.5;
  bool one_mean = false;        // c is 1, else log-normal over elements with either sign
  DType dtype = DType::kBF16;   // of the sum while it runs
  DType result = DType::kBF16;  // in which it is recorded
  DType addend = DType::kBF16;
  RoundingMode rounding = RoundingMode::kNearestEven;
  bool average = false;
  bool reversed = false;  // recorded in another order than added
  int start_rank = 0;     // ranks below it keep their sum in f32
  std::string poison;     // "nan": one addend in five of the elements; "all": every element
  int drop_call = -1;     // the micro-batch whose values were lost
  int change_after = -1;  // something scales the sum after this micro-batch
  bool values = true;     // else summaries alone
  int segments = 1;       // reductions: the sum is recorded in so many pieces
  // What each step after the first finds of the gradient that the one before left: "stale" (all of
  // it), "cleared", "changed" (halved), "twin" (another one); "": nobody looks. Poisoned sums leave
  // poison.
  std::string left;
  // Each step after the first begins with the result of the one before, at the same elements;
  // "twin": with a value of its own there; "": each at elements of its own.
  std::string carries;
  int left_samples = 128;
  double left_zeros = 0;     // share of the elements that are zero when the step ends
  int left_stale_rank = -1;  // the others clear theirs; -1: all alike
  int left_first = 1;        // from this step on; before it they are cleared
  std::string layer = "layers.3.weight";
  uint64_t seed = 1;
};

// "adds = 64", one setting. Throws std::runtime_error on an unknown key.
void Set(AccumulationSpec& spec, const std::string& key, const std::string& value);

// One batch with every rank and step, op "accumulation".
v1::Batch AccumulationRun(const AccumulationSpec& spec);

}  // namespace plumbline::rules::testing
