// Tracks how far the ranks of one attempt of one role have come, and which ranks are still awaited.
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

// Why steps were closed over a rank. If its evidence still arrives, it is counted as late for this
// cause. Stored in checkpoints.
enum class LateCause : uint8_t {
  kUnknown = 0,
  kRankSlow = 1,      // connected, nothing left to send, a window of steps late
  kStreamBroken = 2,  // its stream ended without a goodbye and did not come back in time
  kServerAway = 3,    // the server was away, and the rank did not come back to it in time
  kRankSilent = 4,    // connected, but nothing arrived from it
  kNeverCame = 5,     // sent no hello in time
  kNoRoom = 6,        // the run's open steps held as many bytes as allowed
  kNextAttempt = 7,   // arrived after the next attempt of its run had begun
};

// Returns the loss cause under which it is counted: "late-rank-slow", or "late" if it is unknown.
const char* LossCauseOf(LateCause cause);

// Not thread-safe. The cost of a query does not grow with the number of ranks, seen or declared.
class RankProgress {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  // Records that something arrived from the rank: it exists, and if it was gone, it is awaited
  // again.
  void Hear(uint32_t rank);
  // Awaits all steps of the rank, however far the others are: it is closed over only after it
  // leaves.
  void Await(uint32_t rank);
  // Records the rank's reported progress. `complete_through` is kNever while no step is complete.
  // Older reports change nothing.
  void Advance(uint32_t rank, int64_t complete_through, int64_t newest_step);
  // Records its goodbye: the rank is never awaited again.
  void Finish(uint32_t rank);
  // Stops waiting for the rank until something arrives from it.
  void Leave(uint32_t rank, LateCause cause);
  // Stops waiting for ranks that were never seen, until something arrives from them.
  void LeaveUnseen();
  // Closes steps over the ranks that are awaited and have not delivered all up to `through`.
  void CloseOver(int64_t through, LateCause cause);

  size_t seen() const { return ranks_.size(); }
  // Returns true if a rank of a world of `world` ranks is awaited although it was never seen.
  bool awaits_unseen(uint32_t world) const { return !unseen_gone_ && ranks_.size() < world; }
  // False while no rank reported progress, as for lone dumps.
  bool any() const { return any_; }
  // Returns the newest step that any rank reported; kNever before.
  int64_t newest_step() const { return newest_step_; }
  // Returns the step below which nothing more can arrive from the awaited ranks that were seen. If
  // none is awaited, returns the largest int64.
  int64_t slowest() const {
    return waiting_.empty() ? std::numeric_limits<int64_t>::max() : waiting_.begin()->first;
  }

  // Returns the step up to which all evidence of the rank has arrived; kNever: of no step.
  int64_t complete_through(uint32_t rank) const;
  bool finished(uint32_t rank) const;
  // Returns why steps were last closed over the rank.
  LateCause late_cause(uint32_t rank) const;

  // Returns true if nothing more can arrive for `step` from the ranks seen. If `far_back`, the
  // window has passed and ranks without backlog are closed over; ranks that still send, or that are
  // awaited to their end, are not.
  bool Covered(int64_t step, bool far_back) const;
  // Returns at most `most` ranks, ascending, whose evidence of `step` is incomplete, without those
  // in `present`; at least one if any is incomplete. `world` is the declared number of ranks; if it
  // is 0, none is missing.
  std::vector<uint32_t> Missing(int64_t step, uint32_t world, const std::set<uint32_t>& present,
                                size_t most) const;

  // Returns the number of ranks below `world` that were never seen. Appends their ranges,
  // ascending, to `ranges`, until it has `most`.
  uint64_t Unseen(uint32_t world, size_t most,
                  std::vector<std::pair<uint32_t, uint32_t>>* ranges) const;

  // Returns the awaited ranks that were seen and have not delivered all up to `step`, ascending.
  std::vector<uint32_t> After(int64_t step) const;

  struct State {
    uint32_t rank = 0;
    int64_t complete_through = kNever;
    bool waited_for = false;
  };
  std::vector<State> States() const;  // of the ranks seen, ascending
  // Returns the newest step that the rank reported; kNever before.
  int64_t newest_step_of(uint32_t rank) const;

  // backlogged_, done_ and first_unseen_ are derived from ranks_. Whether a rank is awaited to its
  // end is not stored.
  void Persist(Archive& a);

 private:
  struct Rank {
    int64_t complete_through = kNever;
    int64_t newest_step = kNever;
    bool done = false;
    bool gone = false;
    LateCause cause = LateCause::kUnknown;
    bool awaited = false;
    // `awaited` is used only by readers of whole records, which make no checkpoint.
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
  Order waiting_;              // ranks that are not done or gone
  Order backlogged_;           // ranks of waiting_ that have more to send; derived from ranks_
  Order done_;                 // ranks that are done or gone; derived from ranks_
  uint32_t first_unseen_ = 0;  // every lower rank was seen; derived from ranks_
  int64_t newest_step_ = kNever;
  bool any_ = false;
  bool unseen_gone_ = false;
};

}  // namespace plumbline::rules
