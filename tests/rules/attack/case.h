// One recording of the attack, for golden cases ([attack]).
#pragma once

#include <string>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

struct AttackSpec {
  std::string family;  // a name of CleanFamilies or LeakingFamilies
  int seed = 1;
  bool facts = true;        // capacity, pools and policy recorded
  bool misdeclare = false;  // ... as they are not
};

// Throws std::runtime_error on an unknown key or value.
void Set(AttackSpec& spec, const std::string& key, const std::string& value);
v1::Batch AttackRun(const AttackSpec& spec);

}  // namespace plumbline::rules::attack
