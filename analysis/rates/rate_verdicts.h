// Findings of a rate's course, in words. What lacks here (layer, ranks) is the rule's.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/frame/frame.h"
#include "analysis/rates/rate_course.h"

namespace plumbline::rules {

// `op`: the series' name. The place's steps are filled.
FindingBuilder RestartFinding(const std::string& op, const RateRestart& restart);
FindingBuilder FasterFinding(const std::string& op, const RateFaster& faster, uint32_t world_size);

// What was declared of a schedule, and what was seen: the first is a whole multiple, at least
// twice, of the second.
struct DeclaredSchedule {
  const char* what;  // "warms up", "decays"
  const char* option;
  int64_t declared = 0;  // steps
  int64_t seen = 0;
  uint64_t multiple = 0;
};
// 0: no whole multiple, or fewer than ten steps were seen. A step is one either way.
uint64_t WholeMultiple(int64_t declared, int64_t seen);
FindingBuilder DeclaredFinding(const std::string& op, const DeclaredSchedule& schedule);

}  // namespace plumbline::rules
