// The clean families' lists.
#pragma once

#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

void AddCleanByScores(std::vector<Family>& out);
void AddCleanByTables(std::vector<Family>& out);
void AddCleanByQueue(std::vector<Family>& out);

}  // namespace plumbline::rules::attack
