// Classifies the NaN and infinite values of one series, row by row: a fault, a step that a loss
// scaler skipped, or a row in which the series was not due. A row is one step over all ranks. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "base/archive.h"

namespace plumbline::analysis {

struct NonFiniteRow {
  int64_t step = 0;
  uint64_t values = 0, bad = 0;  // number of values over all ranks; `bad` of them are not finite
  bool nan = false;              // the first bad value is NaN; if false, it is infinite
  double finite = NAN;           // the last finite value
  bool skipped = false;          // a loss scaler skipped this step
  // The loss scale fell in this row, possibly because of the row before.
  bool fell = false;
  bool scaled = false;     // a loss scale is recorded
  bool loss_lost = false;  // a training loss of the row is not finite or exactly 0
  bool norm_lost = false;  // a gradient norm of the row is not finite
};

enum class NonFiniteEvent : uint8_t {
  kNothing,
  kLasts,    // an error: the value is not finite, and no other cause is known
  kSkipped,  // a note: single steps, which a loss scaler may have skipped
  kBegan,    // a note: bad rows while a loss scaler searched for its scale
  kFiller,   // a note: rows in which the series was not due
  kCame,     // a warning: several bad rows, then finite ones again
};

class NonFiniteCourse {
 public:
  enum class Kind : uint8_t { kTraining, kEvaluation, kNorm };

  explicit NonFiniteCourse(Kind kind = Kind::kTraining) : kind_(kind) {}

  // Takes the next row of an attempt, in order.
  NonFiniteEvent Take(uint32_t attempt, const NonFiniteRow& row);
  // Ends the run: returns the result of a row that waited for the next one.
  NonFiniteEvent End();

  Kind kind() const { return kind_; }
  uint32_t attempt() const { return attempt_; }
  // Steps of the last result: the first bad row and the newest one.
  int64_t onset() const { return onset_; }
  int64_t newest() const { return newest_; }
  // Returns the kind of the value at the onset: "nan" or "inf".
  const char* what() const { return nan_ ? "nan" : "inf"; }
  double before() const { return before_; }       // the last finite value before the onset
  uint64_t not_finite() const { return count_; }  // number of bad values from the onset on
  // Number of the attempt's bad rows that occurred alone or in pairs, and number of bad rows that
  // the scaler explains.
  uint64_t single_rows() const { return single_; }
  uint64_t skipped_rows() const { return skipped_; }
  uint64_t rows() const { return rows_; }  // number of rows of the attempt
  // True if no value of the attempt was finite.
  bool never_finite() const { return finite_rows_ == 0; }
  // True if an error was reported and still holds.
  bool lasts() const { return reported_at_ > 0; }
  // True if nothing is open, so that further finite rows only change counters.
  bool calm() const { return streak_ == 0 && finite_rows_ > 0; }
  // Does the same as Take for `count` finite rows. Requires calm(). `last` is the last value.
  void TakeFinite(uint64_t count, double last) {
    rows_ += count;
    finite_rows_ += count;
    finite_streak_ += count;
    skipped_streak_ = 0;
    if (!faulty_) before_ = last;
  }

  void Persist(Archive& a) {
    a(kind_, attempt_, rows_, finite_rows_, single_, skipped_, skipped_streak_, streak_,
      longest_healed_, onset_, newest_, nan_, before_, count_, reported_at_, reported_, faulty_,
      scaled_, singles_reported_, finite_streak_, cycle_, cycles_);
  }

 private:
  NonFiniteEvent TakeBad(const NonFiniteRow& row);
  NonFiniteEvent TakeGood(const NonFiniteRow& row);
  NonFiniteEvent Healed(const NonFiniteRow& row);
  NonFiniteEvent Lasts();
  NonFiniteEvent Note(NonFiniteEvent what);
  void Begin(const NonFiniteRow& row);
  void Forget();
  bool Answers(const NonFiniteRow& row) const;
  void CountCycle(uint64_t bad);
  bool regular() const { return cycles_ >= kCycles; }

  static constexpr uint64_t kCycles = 3;

  Kind kind_;
  uint32_t attempt_ = 0;
  uint64_t rows_ = 0, finite_rows_ = 0;
  uint64_t single_ = 0, skipped_ = 0;
  uint64_t skipped_streak_ = 0;  // newest consecutive bad rows that the scaler explains
  uint64_t streak_ = 0;          // newest consecutive bad rows without an explanation
  uint64_t longest_healed_ = 0;
  int64_t onset_ = 0, newest_ = 0;
  bool nan_ = false;
  double before_ = NAN;
  uint64_t count_ = 0;
  uint64_t reported_at_ = 0;  // `count_` at the last report of the error; 0 if there was none
  bool reported_ = false;     // a note was reported
  bool faulty_ = false;       // a training loss was bad; cleared only if the series was not due
  bool scaled_ = false;       // the newest row had a loss scale
  uint64_t singles_reported_ = 0;
  // For a training loss that is not due in each row: it has a fixed number of finite rows, then a
  // fixed number of bad ones.
  uint64_t finite_streak_ = 0;                 // newest consecutive finite rows
  std::pair<uint64_t, uint64_t> cycle_{0, 0};  // number of finite rows, number of bad rows
  uint64_t cycles_ = 0;                        // consecutive equal cycles
};

}  // namespace plumbline::analysis
