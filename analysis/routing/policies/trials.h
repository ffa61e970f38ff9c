// Trials of policies that rank the candidates of full experts: cell by cell, expert by expert, and
// what the evidence is worth together. Inside of routing_ranked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/ranked.h"

namespace plumbline::rules {

// The cells that refuse.
struct RefusingCells {
  CellChoices list;
  std::vector<uint8_t> fresh;  // per cell: evidence of its own
  std::vector<Choice> head;  // copies of the first cells' choices: most policies ask for no others
  size_t cells() const { return list.size(); }
  // The i-th cell's choices; in `scratch` where they are not at hand.
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

// Splits the candidates at the cut; reorders them. Own thresholds would have had to hit the count
// of those of the rank at which admission ended; the others were settled by rank.
CellResult JudgeCell(std::vector<Candidate>& cell, bool few_values_allowed, bool ranked);

// What one expert's cells are worth together under one policy.
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
  // One threshold, the same in all pools, would do what each of several cells does.
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

// Where a policy finds the keys of its candidates.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // Of the i-th cell's candidates, in their order; valid until the next call. `fits`: the policy
  // fitted so far.
  virtual std::span<const Key> Cell(size_t i, bool fits) = 0;
  // The same of every `stride`-th candidate of the first cell.
  virtual std::span<const Key> Sample(size_t stride) = 0;
};

// A policy that was tried, and its evidence by expert.
struct Trial {
  RankedReplay replay;
  EvidenceOfExperts evidence;
};

// Tries the policy that `replay` describes. One that fails early is not followed to the end. The
// bits are weighed later, with what the other policies showed.
Trial TryPolicy(const RoutingCase& c, const RefusingCells& cells, KeySource& keys,
                RankedReplay replay);

// The evidence of all trials, weighed together: where some score shows one threshold of an expert
// in all its pools, that expert's cells are one piece of evidence under every score.
std::vector<RankedReplay> Weigh(std::vector<Trial> trials);

}  // namespace plumbline::rules
