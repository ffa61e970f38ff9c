// One training loss over the ranks of a run: does one rank's leave those of the others, or stand
// still? Used by health/rank-norms.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

class RankLosses {
 public:
  enum class Kind : uint8_t { kNone, kAbove, kBelow, kStands };
  // Takes the values of a step, of three ranks or more; of fewer, and of more than 1,024, it takes
  // none. Returns true if a rank's loss has just left the others'.
  bool Take(const SiteStep& step);
  Kind left() const { return left_; }
  // Of the rank that left: its number, its value and the median of all in the newest step that
  // decided, and the first step in which its loss was a fifth away from the others'.
  uint32_t rank() const { return rank_; }
  double value() const { return value_; }
  double others() const { return others_; }
  int64_t onset() const { return onset_; }
  int64_t last() const { return last_; }
  uint64_t steps() const { return steps_; }
  // Returns the number of newest steps in which that rank's value is the same.
  uint64_t same() const { return ranks_.at(rank_).same; }
  void Persist(Archive& a) { a(ranks_, steps_, last_, left_, rank_, value_, others_, onset_); }

 private:
  struct Rank {
    double early = 0;           // largest distance in the first steps, ln
    std::deque<double> newest;  // ln (value / median of all)
    double median = 0;          // of these, once there are enough
    double most = 0;            // largest such distance so far
    int64_t away_from = 0;      // first step of those since which it was a fifth away, on one side
    int away = 0;               // that side, -1 or 1; else 0
    double value = 0;           // the newest
    uint64_t same = 0;          // newest steps with that value
    int64_t same_from = 0;
    void Persist(Archive& a) {
      a(early, newest, median, most, away_from, away, value, same, same_from);
    }
  };
  void Add(int64_t step, double value, double far, Rank* rank) const;
  Kind KindOf(const Rank& rank) const;
  bool LeavesTo(const Rank& rank, int side) const;

  std::map<uint32_t, Rank> ranks_;
  uint64_t steps_ = 0;
  int64_t last_ = 0;
  Kind left_ = Kind::kNone;
  uint32_t rank_ = 0;
  double value_ = 0, others_ = 0;
  int64_t onset_ = 0;
};

// Returns the warning on a loss that left.
v1::Verdict RankLossFinding(const std::string& layer, const std::string& op,
                            const RankLosses& losses);

}  // namespace plumbline::rules
