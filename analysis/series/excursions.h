// Finds where a series leaves its level, and says what became of it. The definition is that of
// specs: health (loss-spike); what it leaves open is decided so:
// - the window is even, so that it has two halves;
// - a point that waits for 7 of 9 is compared, it and those after it, with the frame of its own
//   time; of two that open at one point the earlier counts;
// - an onset lies at most 128 points before the point that opens, and behind the end of the
//   excursion before;
// - a point that is no higher than the level left is back, however far that was expected to fall;
// - a spike of 512 points ends there, and the history restarts with its newest 128;
// - whether it is short is judged as it goes on: what was seen to be more warns, whatever follows.
// - one that begins as the rate's schedule restarts is judged when the rate is back where it was:
//   until then it is no divergence, and no warning; its level is not expected to fall.
// In one thing it is stricter: a short one stands out at 2.5 times what was seen before (not 1.5),
// and where that is under 128 points at z >= 16, which noise with the tails of Laplace or of
// Student's t with 5 degrees of freedom asks for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/series/boxed.h"
#include "analysis/series/excursion.h"
#include "analysis/series/growing_ring.h"
#include "analysis/series/level_window.h"
#include "base/archive.h"

namespace plumbline::rules {

class Excursions {
 public:
  struct Point {
    int64_t step = 0;
    double y = 0;
    void Persist(Archive& a) { a(step, y); }
  };
  // Points of the history that no excursion will take back, in order. From number `restart` on they
  // are the beginning of a new history.
  struct Settled {
    std::vector<Point> points;
    std::optional<size_t> restart;
  };

  explicit Excursions(bool linear = false) : window_(linear) {}

  // Adds to both.
  void Take(const Point& point, std::vector<SeriesEvent>* events, Settled* settled);
  // What is open is judged as it stands; the next point is compared with what is history then.
  void Settle(std::vector<SeriesEvent>* events, Settled* settled);
  // Excursions that begin in the next 128 points are notes where they stay under a third.
  void RestartRate() { restart_until_ = points_ + kRestart; }
  static constexpr uint64_t kRestart = 128;  // points
  // The rate rises as its schedule restarts; again with each point as it goes on rising.
  void FollowRestart(const ScheduleRestart& restart);
  // It has fallen to where it was before: the loss must have come back by now.
  void RateIsBack(std::vector<SeriesEvent>* events, Settled* settled);
  // A resume begins: what the rate did before it tells nothing of what follows.
  void ForgetRate();
  // From now on values themselves. Nothing may be open: Settle comes before.
  void GoLinear();
  bool linear() const { return window_.linear(); }
  uint64_t history() const { return window_.count(); }

  void Persist(Archive& a) {
    a(window_, points_, above_, told_, run_, floor_, restart_until_, waiting_, open_, cycle_,
      awaited_);
  }

 private:
  static constexpr uint64_t kBack = 128;     // points within which one recovers
  static constexpr uint64_t kLongest = 512;  // a spike
  static constexpr uint64_t kBefore = 512;   // points that a short one is compared with
  static constexpr uint64_t kAbove = kBefore + kBack + 16;

  static constexpr uint32_t kThree = 3;     // points in a row are back
  static constexpr uint64_t kFollows = 32;  // points in which the level follows what rises

  // A point at z >= 6 that opens if 7 of 9 stay.
  struct Waiting {
    Frame frame;
    uint64_t at = 0;       // in the history
    uint64_t ordinal = 0;  // points of the series before it
    uint64_t from = 0;     // no onset lies before it, in the history
    uint32_t seen = 0, above = 0;
    void Persist(Archive& a) { a(frame, at, ordinal, from, seen, above); }
  };
  // The rate stands higher since a restart.
  struct Cycle {
    ScheduleRestart restart;
    uint64_t from = 0;  // points of the series before it
    uint64_t rose = 0;  // ... before the newest value that was higher
    void Persist(Archive& a) { a(restart, from, rose); }
  };
  // What a restart led to, and the loss is not back from yet.
  struct Awaited {
    Excursion is;
    uint32_t under = 0;                 // newest points under z 3
    uint32_t away = 0;                  // newest points that are not, and a tenth above the level
    std::array<double, kThree> last{};  // excess of the newest points
    int64_t step = 0;                   // of the newest one
    void Persist(Archive& a) { a(is, under, away, last, step); }
  };
  struct Open {
    Open() {}  // NOLINT: clang 14 has no implicit one until Excursions is complete
    Excursion is;
    uint64_t onset = 0;          // points of the series before it
    uint64_t opening = 0;        // of its points, the one that opened it
    uint64_t taken = 0;          // its points so far
    uint32_t under = 0;          // of these, at the end, under z 3
    bool decided = false;        // its kind is known
    bool warned = false;         // it was told as a warning
    bool doubled = false;        // it was told that it doubled
    std::vector<Point> points;   // that may become history again
    std::vector<double> excess;  // until it is decided
    void Persist(Archive& a) {
      a(is, onset, opening, taken, under, decided, warned, doubled, points, excess);
    }
    bool is_short() const { return is.above <= 3 || 2 * is.above <= is.points; }
  };

  void JudgeOne(const Point& point, std::vector<SeriesEvent>* events, Settled* settled);
  void Push(const Point& point) { window_.Push(point.step, point.y); }
  void TellSettled(Settled* settled);
  void OpenAt(const Frame& frame, uint64_t at, bool at_once, std::vector<SeriesEvent>* events,
              Settled* settled);
  uint64_t OnsetOf(uint64_t at) const;
  void LookBefore(uint64_t ordinal, Excursion* is) const;
  double ExcessOf(const Open& open, double y) const;
  void Measure(const Point& point);
  void GoOn(std::vector<SeriesEvent>* events, Settled* settled);
  void Decide();
  void Back(std::vector<SeriesEvent>* events, Settled* settled);
  void Close(size_t from, bool restart, Settled* settled);
  void Say(SeriesEvent::What what, std::vector<SeriesEvent>* events) const;
  // Of restarts of the rate: restarts.cc.
  void LookForRestart();
  void Await(const Point& point);
  void KeepAwaited();
  bool OpenIsAwaited() const;

  LevelWindow window_;
  uint64_t points_ = 0;                // of the series
  GrowingRing<double, kAbove> above_;  // y - m of the newest points; NaN: it was not known
  uint64_t told_ = 0;                  // points of the history that were told as settled
  uint64_t run_ = 0;    // in the history: from it on points may be at z >= 3 in a row
  uint64_t floor_ = 0;  // in the history: no onset lies before it
  uint64_t restart_until_ = 0;
  std::vector<Waiting> waiting_;
  Boxed<Open> open_;
  Boxed<Cycle> cycle_;
  Boxed<Awaited> awaited_;
};

}  // namespace plumbline::rules
