// One series of scalars, judged as it comes: excursions, rises, stalls (specs: health).
//
// Points count, not steps. Memory is bounded (a few hundred KB), and an ordinary point costs a
// tenth of a microsecond. What it does follows from the values in their order alone. Not
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/series/excursions.h"
#include "analysis/series/newest_points.h"
#include "analysis/series/rise.h"
#include "analysis/series/stall.h"
#include "base/archive.h"

namespace plumbline::rules {

class SeriesDetector {
 public:
  // In the order of (attempt, step), a step once. A value that is not finite is no point. A later
  // attempt has as history the points with smaller steps, which are judged no more. Where it begins
  // more than 2,048 points back, its history ends before it does: up to as far as that again.
  void Take(uint32_t attempt, int64_t step, double value, std::vector<SeriesEvent>* events);
  // The rate rose again: for 128 points small excursions are expected, and the loss may rise; what
  // was best before them is no measure any more. Before the point of that step.
  void RestartRate();
  // It rose as a schedule restarts: what begins with it is judged when the rate is back.
  void FollowRestart(const ScheduleRestart& restart) { now_.excursions.FollowRestart(restart); }
  void RateIsBack(std::vector<SeriesEvent>* events);
  // No more points come: what is open is settled as it stands.
  void End(std::vector<SeriesEvent>* events);

  // Points of the history and the newest attempt.
  uint64_t points() const { return now_.points; }
  uint64_t not_finite() const { return not_finite_; }  // values, of all attempts
  // Would a point of this attempt and step be the newest one?
  bool IsNews(uint32_t attempt, int64_t step) const {
    return attempt > attempt_ || (attempt == attempt_ && (points() == 0 || step > now_.last_step));
  }
  // A value was <= 0: since then values are judged as they are, not in ln.
  bool linear() const { return linear_; }
  // Median of the newest 8 to 64 points of the history; NaN before there are 8.
  double level() const { return now_.riser.level(); }
  // A level as a value.
  double value(double y) const { return linear_ ? y : std::exp(y); }
  // Points up to the end of the best block; 0: there is none yet.
  uint64_t best_at() const { return now_.riser.best_at(); }
  StallFigures LookForStall() const { return now_.stall.Look(); }
  bool StallIsDue() const { return now_.stall.Due(); }
  EndFigures LookAtEnd() const { return now_.stall.LookAtEnd(); }
  LearningFigures LookForLearning() const { return now_.stall.LookForLearning(); }
  bool EndIsDue() const { return now_.stall.EndIsDue(); }

  // settled_ is of one call.
  void Persist(Archive& a) { a(now_, newest_, marks_, attempt_, linear_, kept_, not_finite_); }

 private:
  struct State {
    Excursions excursions;
    Riser riser;
    Stall stall;
    uint64_t points = 0;
    int64_t last_step = 0;
    uint64_t calm_from = 0;         // points at which the 128 after a restart of the rate are over
    int64_t calm_step = INT64_MIN;  // of the last of them so far
    void Persist(Archive& a) {
      a(excursions, riser, stall, points, last_step, calm_from, calm_step);
    }
  };
  using Point = std::pair<int64_t, double>;  // step, value

  void Judge(int64_t step, double value, std::vector<SeriesEvent>* events);
  void Feed(std::vector<SeriesEvent>* events);
  void Keep(int64_t step, double value);
  void ThinMarks();
  void Resume(int64_t step, std::vector<SeriesEvent>* events);
  void GoLinear(State* state, std::vector<SeriesEvent>* events);
  double Y(double value) const;

  State now_;
  static constexpr size_t kRemembered = 2048;  // points
  NewestPoints<Point, kRemembered> newest_;    // of the history and the newest attempt
  std::vector<State> marks_;                   // as it was, oldest first
  uint32_t attempt_ = 0;
  bool linear_ = false;
  uint64_t kept_ = 0;  // points, since the last mark
  uint64_t not_finite_ = 0;
  Excursions::Settled settled_;
};

}  // namespace plumbline::rules
