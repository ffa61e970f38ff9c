// Finds where a series leaves its level, and classifies each excursion. The definition is in specs:
// health (loss-spike). Where the spec leaves a choice, the following holds: - the window has an
// even size, so that it has two halves;
// - a point that waits for 7 of 9, and the points after it, are compared with the frame at its
// time; if two excursions open at one point, the earlier one counts;
// - an onset lies at most 128 points before the point that opens, and after the end of the previous
//   excursion;
// - a point that is no higher than the old level is back, even if the level was expected to fall;
// - a spike ends after 512 points, and the history restarts with its newest 128;
// - whether an excursion is short is decided while it continues: if it is not short at some point,
// it is a warning, also if it ends soon after;
// - an excursion that begins when the rate's schedule restarts is judged when the rate is back:
// until then it is no divergence and no warning, and its level is not expected to fall. One rule is
// stricter than the spec: a short excursion must reach 2.5 times the earlier excess (not 1.5). If
// there were fewer than 128 points before, it must reach z >= 16. Noise with the tails of Laplace
// or of Student's t with 5 degrees of freedom needs this.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/series/excursion.h"
#include "analysis/series/growing_ring.h"
#include "analysis/series/level_window.h"
#include "base/archive.h"

namespace plumbline::analysis {

// A std::optional whose value is on the heap, for members that are rarely set: an empty one takes
// only a pointer. A copy copies the value. Persist uses the format of a std::optional. Not
// thread-safe.
template <typename T>
class Boxed {
 public:
  Boxed() = default;
  Boxed(const Boxed& other) : value_(other ? std::make_unique<T>(*other) : nullptr) {}
  Boxed(Boxed&&) noexcept = default;
  Boxed& operator=(const Boxed& other) {
    if (this != &other) value_ = other ? std::make_unique<T>(*other) : nullptr;
    return *this;
  }
  Boxed& operator=(Boxed&&) noexcept = default;
  ~Boxed() = default;

  explicit operator bool() const { return value_ != nullptr; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

  T& Set(T value = T()) {
    value_ = std::make_unique<T>(std::move(value));
    return *value_;
  }
  void Reset() { value_.reset(); }

  void Persist(Archive& a) { a(value_); }

 private:
  std::unique_ptr<T> value_;
};

class Excursions {
 public:
  struct Point {
    int64_t step = 0;
    double y = 0;
    void Persist(Archive& a) { a(step, y); }
  };
  // Points of the history that no excursion can take back, in order. If `restart` is set, the
  // points from that number on begin a new history.
  struct Settled {
    std::vector<Point> points;
    std::optional<size_t> restart;
  };

  explicit Excursions(bool linear = false) : window_(linear) {}

  // Appends to `events` and `settled`.
  void Take(const Point& point, std::vector<SeriesEvent>* events, Settled* settled);
  // Judges an open excursion from the points so far. The next point is compared with the resulting
  // history.
  void Settle(std::vector<SeriesEvent>* events, Settled* settled);
  // Excursions that begin in the next 128 points become notes if they stay below a third.
  void RestartRate() { restart_until_ = points_ + kRestart; }
  static constexpr uint64_t kRestart = 128;  // points
  // Reports that the rate rises because its schedule restarts. Called again for each point while it
  // rises.
  void FollowRestart(const ScheduleRestart& restart);
  // Reports that the rate has fallen to its value before the restart. The loss should then be back.
  void RateIsBack(std::vector<SeriesEvent>* events, Settled* settled);
  // Called at a resume. Discards the state of the rate, because the earlier rate does not predict
  // the next values.
  void ForgetRate();
  // From now on uses values instead of ln values. No excursion may be open: call Settle first.
  void GoLinear();
  bool linear() const { return window_.linear(); }
  uint64_t history() const { return window_.count(); }

  void Persist(Archive& a) {
    a(window_, points_, above_, reported_, run_, floor_, restart_until_, waiting_, open_, cycle_,
      awaited_);
  }

 private:
  static constexpr uint64_t kBack = 128;     // points within which an excursion may recover
  static constexpr uint64_t kLongest = 512;  // longest spike, in points
  // Number of points before the onset with which a short excursion is compared.
  static constexpr uint64_t kBefore = 512;
  static constexpr uint64_t kAbove = kBefore + kBack + 16;

  static constexpr uint32_t kThree = 3;     // consecutive points that must be back
  static constexpr uint64_t kFollows = 32;  // points until the level follows a rise

  // A point at z >= 6 that opens an excursion if 7 of the next 9 points stay away.
  struct Waiting {
    Frame frame;
    uint64_t at = 0;       // number of the point in the history
    uint64_t ordinal = 0;  // number of points of the series before it
    uint64_t from = 0;     // earliest possible onset, in the history
    uint32_t seen = 0, above = 0;
    void Persist(Archive& a) { a(frame, at, ordinal, from, seen, above); }
  };
  // State as long as the rate is higher after a restart.
  struct Cycle {
    ScheduleRestart restart;
    uint64_t from = 0;  // number of points of the series before it
    uint64_t rose = 0;  // number of points of the series before the newest value that was higher
    void Persist(Archive& a) { a(restart, from, rose); }
  };
  // An excursion that a restart caused, and from which the loss has not returned yet.
  struct Awaited {
    Excursion is;
    uint32_t under = 0;  // newest consecutive points with z < 3
    uint32_t away = 0;   // newest consecutive points with z >= 3 and a tenth above the level
    std::array<double, kThree> last{};  // excess of the newest points
    int64_t step = 0;                   // step of the newest point
    void Persist(Archive& a) { a(is, under, away, last, step); }
  };
  struct Open {
    Open() {}  // NOLINT: clang 14 has no implicit one until Excursions is complete
    Excursion is;
    uint64_t onset = 0;          // number of points of the series before it
    uint64_t opening = 0;        // index of the point that opened it
    uint64_t taken = 0;          // number of its points so far
    uint32_t under = 0;          // consecutive points at its end with z < 3
    bool decided = false;        // the kind is final
    bool warned = false;         // the excursion was reported as a warning
    bool doubled = false;        // the excursion was reported as doubled
    std::vector<Point> points;   // points that may return to the history
    std::vector<double> excess;  // excess of each point; cleared when the kind is decided
    void Persist(Archive& a) {
      a(is, onset, opening, taken, under, decided, warned, doubled, points, excess);
    }
    bool is_short() const { return is.above <= 3 || 2 * is.above <= is.points; }
  };

  void JudgeOne(const Point& point, std::vector<SeriesEvent>* events, Settled* settled);
  void Push(const Point& point) { window_.Push(point.step, point.y); }
  void ReportSettled(Settled* settled);
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
  void Report(SeriesEvent::What what, std::vector<SeriesEvent>* events) const;
  // These functions handle restarts of the rate (restarts.cc).
  void LookForRestart();
  void Await(const Point& point);
  void KeepAwaited();
  bool OpenIsAwaited() const;

  LevelWindow window_;
  uint64_t points_ = 0;                // number of points of the series
  GrowingRing<double, kAbove> above_;  // y - m of the newest points; NaN if the level was not known
  uint64_t reported_ = 0;              // number of points of the history reported as settled
  uint64_t run_ = 0;    // place in the history from which on consecutive points may have z >= 3
  uint64_t floor_ = 0;  // place in the history of the earliest possible onset
  uint64_t restart_until_ = 0;
  std::vector<Waiting> waiting_;
  Boxed<Open> open_;
  Boxed<Cycle> cycle_;
  Boxed<Awaited> awaited_;
};

}  // namespace plumbline::analysis
