// Combines calls of one layer, each of which gives a little evidence for a capacity.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "analysis/routing/analysis.h"
#include "base/archive.h"

namespace plumbline::analysis {

// For one site and mode. A single call with few full experts shows neither that one capacity
// refuses nor which policy does. Several calls show both, if they refuse at the same number and one
// leaking policy gives their refusals. Each refusing cell of another expert or with another number
// of candidates counts (a repeated text has the same number), except the most valuable one, which
// determined the capacity.
class CallsTogether {
 public:
  void Take(const RoutingAnalysis& a);

  // Bits of evidence that one capacity refuses, and for the policy. 0 if a call contradicts them.
  double capacity_bits() const { return contradicted_ ? 0 : capacity_bits_ - best_bits_; }
  double policy_bits() const { return contradicted_ ? 0 : policy_bits_; }
  const std::string& policy() const { return policy_; }
  uint64_t calls() const { return calls_; }
  uint64_t inversions() const { return inversions_; }

  // Returns the evidence as text.
  std::string Describe() const;

  void Persist(Archive& a) {
    a(contradicted_, capacity_bits_, best_bits_, policy_bits_, policy_, calls_, inversions_,
      capacity_, rows_, seen_);
  }

 private:
  static constexpr size_t kMostSeen = 4096;  // cells; further ones are not counted

  void TakeCells(const RoutingAnalysis& a);

  bool contradicted_ = false;
  double capacity_bits_ = 0, best_bits_ = 0, policy_bits_ = 0;
  std::string policy_;  // text of RankedReplay; empty if there was no call yet
  uint64_t calls_ = 0, inversions_ = 0;
  int64_t capacity_ = 0, rows_ = 0;             // rows per pool
  std::set<std::pair<int64_t, int64_t>> seen_;  // expert, candidates
};

}  // namespace plumbline::analysis
