// Tests whether the calls of one layer have one capacity. If calls of one size refuse at different
// numbers, and these numbers follow the number of tokens that chose the experts, the capacity is
// computed from the batch, including later tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "analysis/routing/analysis.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// For one site and mode. Keeps the last 64 calls that show their capacity.
class CapacityHistory {
 public:
  void Take(const RoutingAnalysis& a);
  // If calls of the size of `a` refused at another number, returns the verdict: a finding if at
  // least `hint_bits` show that the number follows the tokens, otherwise inconclusive. Call for
  // calls that a queue explains.
  std::optional<v1::Verdict> Judge(const RoutingAnalysis& a, double hint_bits) const;

  void Persist(Archive& a) { a(calls_); }

 private:
  struct Shown {
    int64_t rows = 0, padding = 0;  // per pool; of the call
    // Negated if only the replay of a queue shows it: an expert that a queue closed at some place
    // holds more, the more it is offered. So it is no evidence that the capacity follows the loads.
    int64_t capacity = 0;
    std::vector<int64_t> offered;  // most candidates of a pool, per expert, ascending
    void Persist(Archive& a) { a(rows, padding, capacity, offered); }
  };
  static std::optional<Shown> ShownBy(const RoutingAnalysis& a);

  std::deque<Shown> calls_;
};

}  // namespace plumbline::analysis
