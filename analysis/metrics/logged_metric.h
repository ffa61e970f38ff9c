// Compares one logged series with the measured one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "analysis/metrics/measured_values.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The measured value that a logged number may be. A logger that is called between two steps gives
// its values to the next one, which kStepBefore and kMeanBefore allow.
enum class Reading : uint8_t { kStep, kStepBefore, kStepAfter, kMean, kMeanBefore };
inline constexpr size_t kReadings = 5;

enum class MetricState : uint8_t {
  kFew,        // fewer than kFewest logged values could be compared
  kEqual,      // the logged values are the measured ones
  kFactor,     // they are one factor times the measured ones
  kClipped,    // they are the measured ones, but at most one constant
  kUnrelated,  // none of these: smoothed, of other data, of other parameters
  kCoarse,     // the logged values have too few digits
  kAlike,      // the measured values do not vary, so that a factor shows nothing
};

struct MetricVerdict {
  MetricState state = MetricState::kFew;
  Reading reading = Reading::kStep;
  double factor = 1;                // kFactor: the median of logged / measured
  double range = 0;                 // kFactor: largest / smallest measured value - 1
  double limit = 0;                 // kClipped: the constant
  size_t points = 0;                // logged values that the verdict rests on
  int64_t first = 0, last = 0;      // steps of the first and of the newest point
  double logged = 0, measured = 0;  // of the newest point
};

class LoggedMetric {
 public:
  static constexpr size_t kFewest = 8, kNewest = 32;  // points
  static constexpr double kTolerance = 4e-3;          // relative: a cast to bf16
  static constexpr double kCoarseFrom = 0.02;         // half a unit of the last digit, relative
  static constexpr double kFactorFrom = 0.01;         // a factor within 1 % of 1 is none
  static constexpr double kMovedFrom = 0.02;          // relative range of the measured values

  // Takes a value that was logged in `step`, when the step after it has been measured. `since`: the
  // number of steps since the last logged value. Values that are not finite and above 0 are left
  // out, because other rules judge them.
  void Take(int64_t step, double logged, int64_t since, const MeasuredValues& measured);
  // If `may_stand`, the measured values may be one constant (a learning rate), and a factor counts
  // all the same.
  MetricVerdict Judge(bool may_stand) const;

  void Persist(Archive& a) { a(points_); }

 private:
  struct Point {
    int64_t step = 0;
    double logged = 0;
    std::array<double, kReadings> measured{};  // NaN: not known
    void Persist(Archive& a) { a(step, logged, measured); }
  };

  MetricVerdict At(size_t reading, MetricState state) const;
  bool IsEqual(size_t reading) const;
  bool IsClipped(size_t reading, MetricVerdict* out) const;
  bool IsFactor(size_t reading, bool may_stand, MetricVerdict* out) const;
  // Returns true if kFewest points or more have this reading, and nearly all of them do.
  bool IsKnown(size_t reading) const;
  // Returns true if the measured values vary by more than what two equal values may differ by.
  bool Moved(size_t reading) const;
  // Returns the largest measured value divided by the smallest, less 1.
  double RangeOf(size_t reading) const;
  // Returns half a unit of the last decimal that the log prints, 0 if it prints more than 6.
  double HalfUnit() const;
  // Returns how far `logged` may be from the measured value that it states.
  double RoomFor(double logged) const { return kTolerance * logged + HalfUnit(); }

  std::deque<Point> points_;
};

}  // namespace plumbline::analysis
