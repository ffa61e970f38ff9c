// Which ranks hand the same values to a reduction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "analysis/collective/case/case.h"

namespace plumbline::rules {

// What one step shows: of each rank, the first one with the same values.
struct InputClasses {
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> classes;
  uint64_t telling = 0;  // elements that two equal ranks share, at least
  bool unclear = false;  // equal in too little
  bool finite = false;
};

InputClasses ClassesOfInputs(const JoinedReduction& joined, const ReductionCase& c);

// Further calls of one step: who was the same before and is not now is another.
void Refine(const InputClasses& next, InputClasses& step);

// Ranks with the same key, each list by its first; those that stand alone are left out.
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

}  // namespace plumbline::rules
