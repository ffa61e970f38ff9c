// Families of rollout recordings whose drift begins in the middle of a run: dropout, other
// arithmetic, another tokenisation, another template, another model, a missed update; and healthy
// twins. Their sizes, lengths, vocabularies and records differ by the seed. A family's truth is
// known by construction.
#pragma once

#include <string>
#include <vector>

#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {

struct LateOnset {
  std::string name;
  std::string cause;  // the only one that a finding may name, besides "unknown"; "" if healthy
  std::string words;  // that the explanation must have if the cause is unknown
  RolloutSpec (*make)(int seed);
};
const std::vector<LateOnset>& LateOnsets();

}  // namespace plumbline::rules::testing
