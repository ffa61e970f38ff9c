// Judges one series of scalars as its points arrive: excursions, rises, stalls (specs: health).
//
// Durations count points, not steps. Memory is bounded (a few hundred KB), and an ordinary point
// costs a tenth of a microsecond. The result depends only on the values and their order. Not
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/series/excursions.h"
#include "analysis/series/lasting_rise.h"
#include "analysis/series/newest_points.h"
#include "analysis/series/rise.h"
#include "analysis/series/stall.h"
#include "base/archive.h"

namespace plumbline::analysis {

class SeriesDetector {
 public:
  // Takes points in the order of (attempt, step), each step once. If `value` is not finite, counts
  // it, but does not use it as a point. A later attempt keeps the points with smaller steps as its
  // history, and does not judge them again. If it begins more than 2,048 points back, its history
  // ends up to 2,048 points before the attempt begins.
  void Take(uint32_t attempt, int64_t step, double value, std::vector<SeriesEvent>* events);
  // Call before the point of the step in which the learning rate rose again. In the next 128
  // points, small excursions are expected and the loss may rise. The best level before these points
  // is no longer used.
  void RestartRate();
  // Call if the learning rate rose because its schedule restarts. Excursions that begin with the
  // restart are judged when the rate is back at its earlier value.
  void FollowRestart(const ScheduleRestart& restart) { now_.excursions.FollowRestart(restart); }
  void RateIsBack(std::vector<SeriesEvent>* events);
  // Ends the series. Judges open excursions from the points so far.
  void End(std::vector<SeriesEvent>* events);

  // Returns the number of points of the history and the newest attempt.
  uint64_t points() const { return now_.points; }
  uint64_t not_finite() const {
    return not_finite_;
  }  // number of non-finite values, of all attempts
  // Returns true if a point of this attempt and step would be the newest one.
  bool IsNews(uint32_t attempt, int64_t step) const {
    return attempt > attempt_ || (attempt == attempt_ && (points() == 0 || step > now_.last_step));
  }
  // True after a value <= 0. From then on the values are judged directly, not as ln value.
  bool linear() const { return linear_; }
  // Returns the median of the newest 8 to 64 points of the history. If there are fewer than 8,
  // returns NaN.
  double level() const { return now_.riser.level(); }
  // Converts a level to a value.
  double value(double y) const { return linear_ ? y : std::exp(y); }
  // Returns the number of points up to the end of the best block. If there is no best block yet,
  // returns 0.
  uint64_t best_at() const { return now_.riser.best_at(); }
  StallFigures LookForStall() const { return now_.stall.Look(); }
  bool StallIsDue() const { return now_.stall.Due(); }
  bool GoesUpAndDown(double low, double high, int64_t onset) const {
    return now_.stall.GoesUpAndDown(low, high, onset);
  }
  // Medians of blocks, as levels.
  const BlockMedians& course() const { return now_.stall.blocks(); }
  double NeighbourSigma() const { return now_.stall.NeighbourSigma(); }
  FallFigures LookForFall() const { return now_.stall.LookForFall(); }
  EndFigures LookAtEnd() const { return now_.stall.LookAtEnd(); }
  ExplosionFigures LookForExplosion() const;
  // For short series without a restart of the learning rate, from kFewestForLasting points on.
  LastingRise FindLastingRise() const;
  // Of at most the newest 2,048 points.
  RepeatFigures LookForRepeats() const { return analysis::LookForRepeats(Newest()); }
  FrozenFigures LookForFrozen() const { return analysis::LookForFrozen(Newest()); }
  EarlyBreak LookForEarlyBreak() const;  // of at most 2,048 points, above 0; else nothing breaks
  PlungeFigures LookForPlunge() const;   // of at most the newest 2,048 points
  LearningFigures LookForLearning() const { return now_.stall.LookForLearning(); }
  bool EndIsDue() const { return now_.stall.EndIsDue(); }

  // settled_ is only used within a call, so it is not stored.
  void Persist(Archive& a) { a(now_, newest_, marks_, attempt_, linear_, kept_, not_finite_); }

 private:
  struct State {
    Excursions excursions;
    Riser riser;
    Stall stall;
    uint64_t points = 0;
    int64_t last_step = 0;
    // Number of points at which the 128 points after a restart of the rate end.
    uint64_t calm_from = 0;
    int64_t calm_step = INT64_MIN;  // step of the newest of these points
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
  std::vector<Point> Newest() const;
  std::vector<Point> NewestYs() const;

  State now_;
  static constexpr size_t kRemembered = 2048;  // newest points that are kept
  NewestPoints<Point, kRemembered> newest_;  // newest points of the history and the newest attempt
  std::vector<State> marks_;                 // earlier states, oldest first
  uint32_t attempt_ = 0;
  bool linear_ = false;
  uint64_t kept_ = 0;  // points since the last mark
  uint64_t not_finite_ = 0;
  Excursions::Settled settled_;
};

}  // namespace plumbline::analysis
