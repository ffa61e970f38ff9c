// Calls of one layer, taken together: a capacity that each of them shows a little of.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "analysis/routing/analysis.h"
#include "base/archive.h"

namespace plumbline::rules {

// Of one site and mode. A single call with few full experts shows neither that one capacity refuses
// nor which policy does; several that refuse at the same number, and whose refusals one leaking
// policy gives, do. What is counted: each refusing cell of another expert or with another number of
// candidates (a text that occurs again brings its number along), less the one worth most, which
// gave the capacity its value.
class CallsTogether {
 public:
  void Take(const RoutingAnalysis& a);

  // Bits that one capacity refuses, and that the policy's refusals are worth; 0 if a call
  // contradicts them.
  double capacity_bits() const { return contradicted_ ? 0 : capacity_bits_ - best_bits_; }
  double policy_bits() const { return contradicted_ ? 0 : policy_bits_; }
  const std::string& policy() const { return policy_; }
  uint64_t calls() const { return calls_; }
  uint64_t inversions() const { return inversions_; }

  // What they show, for people.
  std::string Describe() const;

  void Persist(Archive& a) {
    a(contradicted_, capacity_bits_, best_bits_, policy_bits_, policy_, calls_, inversions_,
      capacity_, rows_, seen_);
  }

 private:
  static constexpr size_t kMostSeen = 4096;  // cells; no more are counted

  void TakeCells(const RoutingAnalysis& a);

  bool contradicted_ = false;
  double capacity_bits_ = 0, best_bits_ = 0, policy_bits_ = 0;
  std::string policy_;  // as RankedReplay describes it; empty: no call yet
  uint64_t calls_ = 0, inversions_ = 0;
  int64_t capacity_ = 0, rows_ = 0;             // rows of a pool
  std::set<std::pair<int64_t, int64_t>> seen_;  // expert, candidates
};

}  // namespace plumbline::rules
