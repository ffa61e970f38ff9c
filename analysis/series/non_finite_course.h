// One series' values that are NaN or infinite, row by row: which of them are a fault, and which are
// a step that a loss scaler skipped, or a row in which the series was not due. A row is one step,
// over all ranks. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "base/archive.h"

namespace plumbline::rules {

struct NonFiniteRow {
  int64_t step = 0;
  uint64_t values = 0, bad = 0;  // over all ranks; `bad`: not finite
  bool nan = false;              // the first bad one is NaN, else infinite
  double finite = NAN;           // the last finite value
  bool skipped = false;          // a loss scaler skipped this step
  bool fell = false;             // the loss scale fell in this row: it may answer the row before
  bool scaled = false;           // a loss scale is recorded
  bool loss_lost = false;        // a training loss of the row is not finite, or exactly 0
  bool norm_lost = false;        // a gradient norm of the row is not finite
};

enum class NonFiniteSays : uint8_t {
  kNothing,
  kLasts,    // an error: it is not finite, as far as is known
  kSkipped,  // a note: single steps, as a loss scaler skips them
  kBegan,    // a note: while a loss scaler found its scale
  kFiller,   // a note: rows in which it was not due
  kCame,     // a warning: several rows in a row, then finite again
};

class NonFiniteCourse {
 public:
  enum class Kind : uint8_t { kTraining, kEvaluation, kNorm };

  explicit NonFiniteCourse(Kind kind = Kind::kTraining) : kind_(kind) {}

  // The next row of an attempt, in order.
  NonFiniteSays Take(uint32_t attempt, const NonFiniteRow& row);
  // At the run's end: what waited for the next row.
  NonFiniteSays End();

  Kind kind() const { return kind_; }
  uint32_t attempt() const { return attempt_; }
  // Of what was said last: the first bad row, and the newest one.
  int64_t onset() const { return onset_; }
  int64_t newest() const { return newest_; }
  // "nan" or "inf", at the onset.
  const char* what() const { return nan_ ? "nan" : "inf"; }
  double before() const { return before_; }       // the last finite value before the onset
  uint64_t not_finite() const { return count_; }  // values, from the onset on
  // Bad rows of the attempt that came alone or with one other, and those that the scaler explains.
  uint64_t single_rows() const { return single_; }
  uint64_t skipped_rows() const { return skipped_; }
  uint64_t rows() const { return rows_; }  // of the attempt
  // No value of the attempt was finite.
  bool never_finite() const { return finite_rows_ == 0; }
  // An error was told, and stands.
  bool lasts() const { return told_at_ > 0; }
  // Nothing is open: rows of finite values change nothing but their number.
  bool calm() const { return streak_ == 0 && finite_rows_ > 0; }
  // What Take makes of `count` rows of finite values, where it is calm; `last`: the last value.
  void TakeFinite(uint64_t count, double last) {
    rows_ += count;
    finite_rows_ += count;
    finite_streak_ += count;
    skipped_streak_ = 0;
    if (!faulty_) before_ = last;
  }

  void Persist(Archive& a) {
    a(kind_, attempt_, rows_, finite_rows_, single_, skipped_, skipped_streak_, streak_,
      longest_healed_, onset_, newest_, nan_, before_, count_, told_at_, told_, faulty_, scaled_,
      singles_told_, finite_streak_, cycle_, cycles_);
  }

 private:
  NonFiniteSays TakeBad(const NonFiniteRow& row);
  NonFiniteSays TakeGood(const NonFiniteRow& row);
  NonFiniteSays Healed(const NonFiniteRow& row);
  NonFiniteSays Lasts();
  NonFiniteSays Note(NonFiniteSays what);
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
  uint64_t skipped_streak_ = 0;  // newest bad rows in a row that the scaler explains
  uint64_t streak_ = 0;          // newest bad rows in a row that nothing explains
  uint64_t longest_healed_ = 0;
  int64_t onset_ = 0, newest_ = 0;
  bool nan_ = false;
  double before_ = NAN;
  uint64_t count_ = 0;
  uint64_t told_at_ = 0;  // `count_` when the error was told last; 0: it was not
  bool told_ = false;     // a note was
  bool faulty_ = false;   // a training loss that was bad stays so, whatever follows
  bool scaled_ = false;   // the newest row had a loss scale
  uint64_t singles_told_ = 0;
  // Rows of a training loss that is not due in each: so many finite ones, then so many bad ones.
  uint64_t finite_streak_ = 0;                 // newest finite rows in a row
  std::pair<uint64_t, uint64_t> cycle_{0, 0};  // finite, bad
  uint64_t cycles_ = 0;                        // in a row that were alike
};

}  // namespace plumbline::rules
