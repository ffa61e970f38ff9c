// Parts of the list of leaking families.
#pragma once

#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

void AddLeakingInSmallCalls(std::vector<Family>& out);

}  // namespace plumbline::rules::attack
