// Trials of policies that rank the candidates of full experts: cell by cell, expert by expert, and
// what the evidence is worth together. Inside of routing_ranked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "rules/lib/routing_capacity.h"
#include "rules/lib/routing_case.h"
#include "rules/lib/routing_ranked.h"

namespace plumbline::rules {

// The cells that refuse.
struct RefusingCells {
  CellChoices list;
  std::vector<uint8_t> fresh;  // per cell: evidence of its own
  size_t cells() const { return list.size(); }
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

class Judge {
 public:
  Judge(const RoutingCase& c, const RefusingCells& cells) : c_(c), cells_(cells) {}

  // key(choice) -> Key. A policy that fails early is not followed to the end. The bits are weighed
  // later, with what the other policies showed.
  template <typename KeyOfChoice>
  EvidenceOfExperts Run(KeyOfChoice key, RankedReplay* out) const {
    out->exact = cells_.cells() > 0;
    int64_t agree = 0, seen = 0;
    std::vector<Candidate> cell;
    EvidenceOfExperts experts;
    for (size_t i = 0; i < cells_.cells() && (out->exact || seen <= kEnough); ++i) {
      cell.clear();
      int32_t expert = 0;
      for (size_t at = cells_.list.begin[i]; at < cells_.list.begin[i + 1]; ++at) {
        const Choice& choice = c_.choices[static_cast<size_t>(cells_.list.choices[at])];
        expert = choice.expert;
        const Key k = key(choice);
        // A score that is not finite, or a rank that is not known, says nothing for or against.
        if (!std::isfinite(k.value) || (out->rank_first && choice.rank < 0)) continue;
        cell.push_back(
            {out->rank_first ? choice.rank : int16_t{0}, choice.kept, k.value, k.tolerance});
      }
      const CellResult result =
          JudgeCell(cell, out->priority == RankedReplay::Priority::kPlace, out->rank_first);
      agree += result.agree;
      seen += static_cast<int64_t>(cell.size());
      out->exact &= result.exact;
      experts[expert].Add(cell, result, cells_.fresh[i] != 0);
    }
    out->share = static_cast<double>(agree) / static_cast<double>(std::max<int64_t>(seen, 1));
    return experts;
  }

 private:
  static constexpr int64_t kEnough = 4096;  // choices after which a refuted policy is given up
  const RoutingCase& c_;
  const RefusingCells& cells_;
};

// The policies tried and their evidence, weighed together: where some score shows one threshold of
// an expert in all its pools, that expert's cells are one piece of evidence under every score.
class Trials {
 public:
  Trials(const RoutingCase& c, const RefusingCells& cells) : judge_(c, cells) {}

  template <typename KeyOfChoice>
  void Run(KeyOfChoice key, RankedReplay replay) {
    EvidenceOfExperts evidence = judge_.Run(key, &replay);
    const bool own = replay.priority == RankedReplay::Priority::kOwnScore && !replay.rank_first;
    for (const auto& [expert, of] : evidence) {
      const bool tells = of.best().raw_bits > of.best().tie_bits;
      if (own && replay.exact && tells && of.one_threshold()) thresholds_.insert(expert);
    }
    replays_.push_back(std::move(replay));
    evidence_.push_back(std::move(evidence));
  }

  std::vector<RankedReplay> Weighed() {
    for (size_t i = 0; i < replays_.size(); ++i) {
      RankedReplay& replay = replays_[i];
      for (const auto& [expert, of] : evidence_[i]) {
        const bool once = replay.by_score() && thresholds_.contains(expert);
        const CellResult& worth = once ? of.best() : of.sum();
        replay.bits += worth.bits;
        replay.raw_bits += worth.raw_bits;
        replay.tie_bits += worth.tie_bits;
        replay.luck_bits += worth.luck_bits;
      }
    }
    return std::move(replays_);
  }

 private:
  Judge judge_;
  std::vector<RankedReplay> replays_;
  std::vector<EvidenceOfExperts> evidence_;
  std::set<int32_t> thresholds_;
};

}  // namespace plumbline::rules
