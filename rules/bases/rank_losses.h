// One training loss over the ranks of a run: does that of some ranks leave those of the others,
// stand still, or become 0? Used by health/rank-norms.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

class RankLosses {
 public:
  enum class Kind : uint8_t { kNone, kAbove, kBelow, kStands, kZero };
  // Takes the values of a step, of two ranks or more; of fewer, and of more than 1,024, it takes
  // none. Returns true if the loss of some ranks has just left the others'.
  bool Take(const SiteStep& step);
  Kind left() const { return left_; }
  // The ranks that left. For the first of them: its value, the median of the other ranks in the
  // newest step that decided, and the first step in which its loss left.
  const std::vector<uint32_t>& ranks() const { return left_ranks_; }
  double value() const { return value_; }
  double others() const { return others_; }
  int64_t onset() const { return onset_; }
  int64_t last() const { return last_; }
  uint64_t steps() const { return steps_; }
  // Returns the number of newest steps in which that rank's value is the same, or 0.
  uint64_t in_a_row() const {
    const Rank& rank = ranks_.at(left_ranks_.front());
    return left_ == Kind::kZero ? rank.zero.now : rank.same.now;
  }
  void Persist(Archive& a) {
    a(ranks_, steps_, last_, left_, left_ranks_, value_, others_, onset_);
  }

 private:
  // Steps in a row.
  struct Streak {
    uint64_t now = 0, before = 0;  // the newest ones, and the most ever before them
    int64_t from = 0;
    void Count(bool goes_on, int64_t step);
    // Long, and three times as long as ever before.
    bool lasts() const;
    void Persist(Archive& a) { a(now, before, from); }
  };
  struct Rank {
    double early = 0;           // largest distance in the first steps, ln
    std::deque<double> newest;  // ln (value / median of all)
    double median = 0;          // of these, once there are enough
    double most = 0;            // largest such distance so far
    int64_t away_from = 0;      // first step of those since which it was a fifth away, on one side
    int away = 0;               // that side, -1 or 1; else 0
    double value = 0;           // the newest
    uint64_t above = 0;         // number of values above 0
    Streak same, zero;          // steps with one value, and with a value of 0
    void Persist(Archive& a) {
      a(early, newest, median, most, away_from, away, value, above, same, zero);
    }
  };
  using Values = std::map<uint32_t, double>;
  void Add(int64_t step, double value, double far, Rank* rank) const;
  bool Left(const Values& values, Kind kind, std::vector<uint32_t> ranks);
  std::vector<uint32_t> Zero() const;
  std::vector<uint32_t> Standing() const;
  std::vector<uint32_t> Leaving(int side) const;
  bool Leaves(const std::vector<uint32_t>& group, int side) const;

  std::map<uint32_t, Rank> ranks_;
  uint64_t steps_ = 0;
  int64_t last_ = 0;
  Kind left_ = Kind::kNone;
  std::vector<uint32_t> left_ranks_;
  double value_ = 0, others_ = 0;
  int64_t onset_ = 0;
};

// Returns the warning on a loss that left.
v1::Verdict RankLossFinding(const std::string& layer, const std::string& op,
                            const RankLosses& losses);

}  // namespace plumbline::rules
