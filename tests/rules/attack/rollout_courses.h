// Families of rollout recordings for the course and the cause of a drift: faults that grow, that
// are repaired, or that only one worker has; other weights, packing, templates. Each has a healthy
// twin, or a twin with another cause. A family's truth is known by construction.
//
// A wrong cause is a failure. "unknown" is allowed in a share of a family's runs, if the text names
// the causes that remain.
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
  std::string rule;    // that must report it, or a prefix of it; "" if none may be above a note
  std::string cause;   // that the report must name; "" if none is required
  std::string words;   // that the explanation must have
  int64_t first = -1;  // steps of the finding, to within 2; -1: not tested
  int64_t last = -1;
  double unknown_share = 0;   // of the runs, whose cause may be unknown
  std::string unknown_words;  // that the explanation must then have
};
const std::vector<CourseFamily>& CourseFamilies();

}  // namespace plumbline::rules::testing
