// Finds ranks that pass the same values to a reduction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

// The result of one step: for each rank, the lowest rank with the same values.
struct InputClasses {
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> classes;
  uint64_t informative = 0;  // at least this number of elements is shared by two equal ranks
  bool unclear = false;      // too few equal elements to decide
  bool finite = false;
};

InputClasses ClassesOfInputs(const JoinedReduction& joined, const ReductionCase& c);

// Combines further calls of one step: ranks that were equal before and are not now are different.
void Refine(const InputClasses& next, InputClasses& step);

// Returns lists of ranks with the same key, ordered by their first rank. Ranks alone are left out.
template <typename Key>
std::vector<std::vector<size_t>> Alike(const std::vector<Key>& keys) {
  std::map<Key, std::vector<size_t>> lists;
  for (size_t i = 0; i < keys.size(); ++i) lists[keys[i]].push_back(i);
  std::vector<std::vector<size_t>> alike;
  for (auto& [key, list] : lists) {
    if (list.size() > 1) alike.push_back(std::move(list));
  }
  std::sort(alike.begin(), alike.end());
  return alike;
}

}  // namespace plumbline::analysis
