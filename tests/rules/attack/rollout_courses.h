// Families of rollout recordings for the course and the cause of a drift: faults that grow, that
// are repaired, or that only one worker has; other weights, packing, templates. Each has a healthy
// twin, or a twin with another cause. A family's truth is known by construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {

struct CourseFamily {
  std::string name;
  RolloutSpec (*make)(int seed);
  std::string rule;    // that must report it; "" if none may be louder than a note
  std::string cause;   // that the report must name; "" if none is required
  std::string words;   // that the explanation must have
  int64_t first = -1;  // steps of the finding, to within 2; -1: not tested
  int64_t last = -1;
};
const std::vector<CourseFamily>& CourseFamilies();

}  // namespace plumbline::rules::testing
