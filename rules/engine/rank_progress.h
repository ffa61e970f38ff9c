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

// Not thread-safe. No question costs more because there are more ranks, named or merely claimed.
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
  // Ranks of which not everything of `step` has come, those `present` apart, ascending: some of
  // them, `most` at most, and one at least where there are any. `world`: so many ranks are said to
  // exist; of 0 none is missed.
  std::vector<uint32_t> Missing(int64_t step, uint32_t world, const std::set<uint32_t>& present,
                                size_t most) const;

  void Persist(Archive& a);

 private:
  struct Rank {
    int64_t complete_through = kNever;
    int64_t newest_step = kNever;
    bool done = false;
    void Persist(Archive& a) { a(complete_through, newest_step, done); }
    bool backlog() const { return newest_step != kNever && newest_step - 1 > complete_through; }
  };

  using Order = std::set<std::pair<int64_t, uint32_t>>;  // (complete_through, rank)

  Rank& Entry(uint32_t rank);
  void Place(uint32_t rank, const Rank& state);
  void Unplace(uint32_t rank, const Rank& state);
  void FindUnseen();

  std::map<uint32_t, Rank> ranks_;
  Order waiting_;              // those not done
  Order backlogged_;           // of those, who has more to send; found again from ranks_
  Order done_;                 // likewise
  uint32_t first_unseen_ = 0;  // every rank below it was seen; likewise
  int64_t newest_step_ = kNever;
  bool any_ = false;
};

}  // namespace plumbline::rules
