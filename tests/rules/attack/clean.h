// The lists of clean families.
#pragma once

#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

void AddCleanByScores(std::vector<Family>& out);
void AddCleanByTables(std::vector<Family>& out);
void AddCleanByQueue(std::vector<Family>& out);
void AddCleanByLoad(std::vector<Family>& out);
void AddCleanCalibrated(std::vector<Family>& out);
void AddCleanOfPapers(std::vector<Family>& out);

}  // namespace plumbline::rules::attack
