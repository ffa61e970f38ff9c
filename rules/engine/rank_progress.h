// How far the ranks of one attempt of one role have come, and who is still waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

// Not thread-safe. Each question costs as much as there are ranks that lag, not ranks.
class RankProgress {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  // The rank exists; nothing is known of its steps.
  void See(uint32_t rank) { Entry(rank); }
  // It said how far it is: `complete_through` kNever when no step is complete yet. Older words
  // change nothing.
  void Advance(uint32_t rank, int64_t complete_through, int64_t newest_step);
  // It said goodbye, or is gone: never waited for again.
  void Finish(uint32_t rank);
  void FinishAll();

  size_t seen() const { return ranks_.size(); }
  // False while nobody has said a word: lone dumps.
  bool any() const { return any_; }
  // The newest step that any rank said it is in; kNever before.
  int64_t newest_step() const { return newest_step_; }
  // Below it nothing can come from the ranks seen that are still waited for; nothing is when this
  // is the largest int64.
  int64_t slowest() const {
    return waiting_.empty() ? std::numeric_limits<int64_t>::max() : waiting_.begin()->first;
  }

  // Nothing more can come for `step` from the ranks seen. `far_behind`: so many steps have passed
  // since that a rank without backlog is closed over; one that is merely slow to send never is.
  bool Covered(int64_t step, bool far_behind) const;
  // Ranks below `world` of which not everything of `step` has come, ascending.
  std::vector<uint32_t> Incomplete(int64_t step, uint32_t world) const;

  void Persist(Archive& a) { a(ranks_, waiting_, newest_step_, any_); }

 private:
  struct Rank {
    int64_t complete_through = kNever;
    int64_t newest_step = kNever;
    bool done = false;
    void Persist(Archive& a) { a(complete_through, newest_step, done); }
    bool backlog() const { return newest_step != kNever && newest_step > complete_through + 1; }
  };

  Rank& Entry(uint32_t rank);

  std::map<uint32_t, Rank> ranks_;
  std::set<std::pair<int64_t, uint32_t>> waiting_;  // (complete_through, rank), those not done
  int64_t newest_step_ = kNever;
  bool any_ = false;
};

}  // namespace plumbline::rules
