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

// Why steps were closed over a rank: what its evidence is late by when it comes after all. Stored
// in checkpoints.
enum class LateCause : uint8_t {
  kUnknown = 0,
  kRankSlow = 1,      // connected, nothing waited to be sent, a window of steps behind
  kStreamBroken = 2,  // its stream ended without a goodbye and did not come back in time
  kServerAway = 3,    // the server was away, and the rank did not come back to it in time
  kRankSilent = 4,    // connected, and nothing came of it
  kNeverCame = 5,     // it had not said hello in time
  kNoRoom = 6,        // what the run's open steps held had reached its bound
  kNextAttempt = 7,   // it came after the next attempt of its run had begun
};

// The cause of a loss, as it is counted: "late-rank-slow"; "late" where it is not known.
const char* LossCauseOf(LateCause cause);

// Not thread-safe. No question costs more because there are more ranks, named or merely claimed.
class RankProgress {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  // The rank exists, something came of it: one that was gone is back, and waited for again.
  void Hear(uint32_t rank);
  // All of it is to come, however far the others are: it is closed over when it leaves, not before.
  void Await(uint32_t rank);
  // It said how far it is: `complete_through` kNever when no step is complete yet. Older words
  // change nothing.
  void Advance(uint32_t rank, int64_t complete_through, int64_t newest_step);
  // It said goodbye: never waited for again.
  void Finish(uint32_t rank);
  // It is not waited for until it is heard of again.
  void Leave(uint32_t rank, LateCause cause);
  // Nor are those that were never seen, until they are.
  void LeaveUnseen();
  // Who is waited for and has not delivered all up to `through`: steps close without it.
  void CloseOver(int64_t through, LateCause cause);

  size_t seen() const { return ranks_.size(); }
  // A rank of a world of so many is waited for although it was never seen.
  bool awaits_unseen(uint32_t world) const { return !unseen_gone_ && ranks_.size() < world; }
  // False while nobody has said a word: lone dumps.
  bool any() const { return any_; }
  // The newest step that any rank said it is in; kNever before.
  int64_t newest_step() const { return newest_step_; }
  // Below it nothing can come from the ranks seen that are still waited for; nothing is when this
  // is the largest int64.
  int64_t slowest() const {
    return waiting_.empty() ? std::numeric_limits<int64_t>::max() : waiting_.begin()->first;
  }

  // Everything of the rank's steps up to this one has come; kNever: of none.
  int64_t complete_through(uint32_t rank) const;
  bool finished(uint32_t rank) const;
  // Why steps were last closed over it.
  LateCause late_cause(uint32_t rank) const;

  // Nothing more can come for `step` from the ranks seen. `far_behind`: so many steps have passed
  // since that a rank without backlog is closed over; one that is merely slow to send never is, nor
  // one that is awaited.
  bool Covered(int64_t step, bool far_behind) const;
  // Ranks of which not everything of `step` has come, those `present` apart, ascending: some of
  // them, `most` at most, and one at least where there are any. `world`: so many ranks are said to
  // exist; of 0 none is missed.
  std::vector<uint32_t> Missing(int64_t step, uint32_t world, const std::set<uint32_t>& present,
                                size_t most) const;

  // Ranks seen that are waited for and have not delivered all up to `step`, ascending.
  std::vector<uint32_t> Behind(int64_t step) const;

  struct State {
    uint32_t rank = 0;
    int64_t complete_through = kNever;
    bool waited_for = false;
  };
  std::vector<State> States() const;  // of the ranks seen, ascending
  // The newest step that the rank said it is in; kNever before.
  int64_t newest_step_of(uint32_t rank) const;

  // backlogged_, done_ and first_unseen_ are found again from ranks_; who is awaited is not kept.
  void Persist(Archive& a);

 private:
  struct Rank {
    int64_t complete_through = kNever;
    int64_t newest_step = kNever;
    bool done = false;
    bool gone = false;
    LateCause cause = LateCause::kUnknown;
    bool awaited = false;
    // awaited is of who reads whole records, and makes no checkpoint.
    void Persist(Archive& a) { a(complete_through, newest_step, done, gone, cause); }
    bool waited_for() const { return !done && !gone; }
    bool backlog() const {
      return awaited || (newest_step != kNever && newest_step - 1 > complete_through);
    }
  };

  using Order = std::set<std::pair<int64_t, uint32_t>>;  // (complete_through, rank)

  Rank& Entry(uint32_t rank);
  void Place(uint32_t rank, const Rank& state);
  void Unplace(uint32_t rank, const Rank& state);
  void FindUnseen();

  std::map<uint32_t, Rank> ranks_;
  Order waiting_;              // those not done or gone
  Order backlogged_;           // of those, who has more to come; found again from ranks_
  Order done_;                 // or gone; likewise
  uint32_t first_unseen_ = 0;  // every rank below it was seen; likewise
  int64_t newest_step_ = kNever;
  bool any_ = false;
  bool unseen_gone_ = false;
};

}  // namespace plumbline::rules
