// Trainers' loops as their own spans tell of them, and what the rules on time say of them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "rules/engine/engine.h"

namespace plumbline::rules::testing {

// A data-parallel job: each rank loads, works, and leaves the reduction with all others.
struct LoopSpec {
  int ranks = 8, steps = 64;
  double work_ms = 100, spread = 0.05;  // between ranks and steps, each
  double data_ms = 0.4, reduce_ms = 3;
  int checkpoint_every = 0, collect_every = 0;
  double checkpoint_ms = 60, collect_ms = 60;
  double uneven = 0;   // of a rank's work in a step: sequences of other lengths (share, at most)
  double lengths = 0;  // sigma of the logarithm of a rank's work in a step: sequences unpacked
  int evaluate_every = 0;
  double evaluate_ms = 2000;
  bool first_saves = false;  // rank 0 alone writes, and the others wait for it in the next step
  uint32_t attempt = 0;
  int first_step = 0;
  int slow_rank = -1, late_rank = -1;
  double excess_ms = 60;
  bool collectives = true;
  std::string_view layer = timeline::kLoopLayer;
  uint64_t seed = 1;
};

struct Judged {
  std::vector<v1::Finding> findings;
  std::map<std::string, std::set<std::string>> causes;    // of findings, by rule
  std::map<std::string, std::set<std::string>> verdicts;  // "pass", or a reason's id, by rule
};

// All ranks' loops, reduced as a probe reduces them: one block of steps each.
v1::Batch LoopRun(const LoopSpec& spec);

// One behind the other in one run: attempts.
Judged JudgeAll(const std::vector<LoopSpec>& specs);
inline Judged Judge(const LoopSpec& spec) { return JudgeAll({spec}); }

}  // namespace plumbline::rules::testing
