// Trials of policies that rank the candidates of full experts: per cell, per expert, and the
// combined evidence. Internal to routing_ranked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/ranked.h"

namespace plumbline::analysis {

// The cells that refuse choices.
struct RefusingCells {
  CellChoices list;
  std::vector<uint8_t> fresh;  // per cell: independent evidence
  std::vector<Choice> head;    // copies of the first cells' choices; most policies read no others
  size_t cells() const { return list.size(); }
  // Returns the i-th cell's choices. If they are not in `head`, copies them to `scratch`.
  std::span<const Choice> Candidates(const RoutingCase& c, size_t i,
                                     std::vector<Choice>& scratch) const;
};

RefusingCells CollectCells(const RoutingCase& c, const Saturation& s);

// One candidate of a cell under a policy: lower rank first, then higher value.
struct Candidate {
  int16_t rank;
  bool kept;
  double value;
  double tolerance;
};

struct CellResult {
  bool exact = true;
  int64_t agree = 0;
  double bits = 0;
  double raw_bits = 0;
  double tie_bits = 0;
  double luck_bits = 0;
};

// Splits the candidates at the cut, and reorders them. Own thresholds would have reached only by
// chance the count of the rank at which admission ended. Rank alone decided the other candidates.
CellResult JudgeCell(std::vector<Candidate>& cell, bool few_values_allowed, bool ranked);

// The combined evidence of one expert's cells under one policy.
class ExpertEvidence {
 public:
  void Add(const std::vector<Candidate>& cell, const CellResult& result, bool fresh) {
    for (const Candidate& x : cell) {
      if (x.kept) least_kept_ = std::min(least_kept_, x.value + x.tolerance);
      if (!x.kept) most_refused_ = std::max(most_refused_, x.value - x.tolerance);
    }
    ++cells_;
    if (!fresh) return;
    sum_.bits += result.bits;
    sum_.raw_bits += result.raw_bits;
    sum_.tie_bits += result.tie_bits;
    sum_.luck_bits += result.luck_bits;
    if (result.raw_bits >= best_.raw_bits) best_ = result;
  }
  // True if one threshold, common to all pools, gives the same choices as several cells.
  bool one_threshold() const { return cells_ > 1 && !(most_refused_ > least_kept_); }
  const CellResult& best() const { return best_; }
  const CellResult& sum() const { return sum_; }

 private:
  double least_kept_ = HUGE_VAL;
  double most_refused_ = -HUGE_VAL;
  int64_t cells_ = 0;
  CellResult sum_;
  CellResult best_;
};

using EvidenceOfExperts = std::map<int32_t, ExpertEvidence>;

// Source of the keys of a policy's candidates.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // Returns the keys of the i-th cell's candidates, in their order. Valid until the next call.
  // `fits` is true if the policy has fitted so far.
  virtual std::span<const Key> Cell(size_t i, bool fits) = 0;
  // Returns the keys of every `stride`-th candidate of the first cell.
  virtual std::span<const Key> Sample(size_t stride) = 0;
};

// A policy that was tried, and its evidence by expert.
struct Trial {
  RankedReplay replay;
  EvidenceOfExperts evidence;
};

// Tries the policy that `replay` describes. Stops early if the policy fails. The bits are weighed
// later, with the results of the other policies.
Trial TryPolicy(const RoutingCase& c, const RefusingCells& cells, KeySource& keys,
                RankedReplay replay);

// Weighs the evidence of all trials together. If some score shows one threshold of an expert in all
// its pools, that expert's cells count as one piece of evidence under every score.
std::vector<RankedReplay> Weigh(std::vector<Trial> trials);

}  // namespace plumbline::analysis
