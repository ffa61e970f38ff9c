// One recording of the attack as the section [attack] of a golden case.
#pragma once

#include <string>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

struct AttackSpec {
  std::string family;  // A name from CleanFamilies or LeakingFamilies.
  int seed = 1;
  bool facts = true;        // If set, capacity, pools and policy are recorded.
  bool misdeclare = false;  // If set, they are recorded incorrectly.
};

// Sets one field. Throws std::runtime_error if the key or the value is unknown.
void Set(AttackSpec& spec, const std::string& key, const std::string& value);
v1::Batch AttackRun(const AttackSpec& spec);

}  // namespace plumbline::rules::attack
