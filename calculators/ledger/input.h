// A ledger as the user wrote it: runs, and the measurements made with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumbline::ledger {

struct Run {
  std::string id;
  double flops = 0;  // > 0, finite
  int64_t seed = 0;
  double loss = 0;              // nats; > 0, finite
  std::optional<double> other;  // on a second evaluation set; the same conditions
};

// Indices into Ledger::runs. Each run is in one arm only, and once. Two runs of an arm differ in
// scale or seed.
struct Arms {
  std::vector<size_t> with, without;
};

struct Multiplier {
  std::string name;
  double claimed = 1;  // factor, > 0
  bool kept = true;
  Arms arms;
};

struct LeaveOut {
  std::string name;  // name of the change that was removed from the stack
  std::vector<size_t> runs;
};

struct Stack {
  Arms arms;
  std::vector<LeaveOut> leave_outs;
};

struct Ledger {
  double target = 0;             // FLOPs of the run that is planned with the ledger
  std::optional<int64_t> tried;  // all changes, including those listed
  std::vector<Run> runs;
  std::vector<size_t> baseline;
  std::vector<Multiplier> multipliers;
  std::optional<Stack> stack;
};

// Errors that do not average out, as standard deviations. All of them are assumptions.
struct Allowances {
  // of a ln multiplier, for each decade between two scales, and separate for each change
  double scale = 0.02;
  double target = 0.005;  // the same for each decade up to the target, shared by all changes
  double small = 0.001;   // error of ln loss, shared by all ablations of one scale below the
                          // largest
  double large = 0.0005;  // error of ln loss, shared by all ablations at their largest scale
};

}  // namespace plumbline::ledger
