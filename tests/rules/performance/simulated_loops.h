// Simulated training loops with their spans, and the verdicts of the performance rules.
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

// A data-parallel job: each rank loads, works, and ends the reduction at the same time as the
// others.
struct LoopSpec {
  int ranks = 8, steps = 64;
  double work_ms = 100, spread = 0.05;  // standard deviation between ranks and between steps
  double data_ms = 0.4, reduce_ms = 3;
  int checkpoint_every = 0, collect_every = 0;
  double checkpoint_ms = 60, collect_ms = 60;
  double uneven = 0;   // maximum deviation (fraction) of a rank's work per step
  double lengths = 0;  // standard deviation of ln work per rank and step (unpacked sequences)
  int evaluate_every = 0;
  double evaluate_ms = 2000;
  bool first_saves = false;  // only rank 0 writes; the others wait for it in the next step
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
  std::map<std::string, std::set<std::string>> causes;    // Causes of findings, by rule.
  std::map<std::string, std::set<std::string>> verdicts;  // By rule: "pass" or the id of a reason.
};

// Returns the loops of all ranks, reduced as by a probe: one block of steps each.
v1::Batch LoopRun(const LoopSpec& spec);

// Returns the result of one run with these attempts in sequence.
Judged JudgeAll(const std::vector<LoopSpec>& specs);
inline Judged Judge(const LoopSpec& spec) { return JudgeAll({spec}); }

}  // namespace plumbline::rules::testing
