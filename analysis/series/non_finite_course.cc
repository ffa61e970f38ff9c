#include "analysis/series/non_finite_course.h"

namespace plumbline::analysis {
namespace {

// Number of consecutive bad rows of a norm that a scaler alone does not explain.
constexpr uint64_t kLastingRows = 3;
constexpr uint64_t kLastingAtBegin =
    8;  // the same before the first finite row, when a scaler may search for its scale
// Number of consecutive skipped rows from which on no step is applied.
constexpr uint64_t kSkippedForGood = 32;
// Fewest single bad rows, and the percentage of all rows that they must exceed.
constexpr uint64_t kOftenShare = 5;
constexpr uint64_t kManyRows = 100;  // number of rows

}  // namespace

NonFiniteEvent NonFiniteCourse::Take(uint32_t attempt, const NonFiniteRow& row) {
  if (attempt != attempt_ || rows_ == 0) {
    const Kind kind = kind_;
    *this = NonFiniteCourse(kind);
    attempt_ = attempt;
  }
  ++rows_;
  scaled_ = row.scaled;
  return row.bad > 0 ? TakeBad(row) : TakeGood(row);
}

void NonFiniteCourse::Begin(const NonFiniteRow& row) {
  onset_ = row.step;
  nan_ = row.nan;
  count_ = 0;
  reported_at_ = 0;
}

// Returns true if the loss scale fell after one bad row: the scaler skipped that step.
bool NonFiniteCourse::Answers(const NonFiniteRow& row) const {
  if (!row.fell || streak_ != 1 || kind_ == Kind::kEvaluation) return false;
  return kind_ == Kind::kNorm || onset_ == newest_;
}

// Discards the streak, because the scaler caused it, or no value was due.
void NonFiniteCourse::Forget() {
  streak_ = 0;
  count_ = reported_at_ = 0;
  faulty_ = false;
}

NonFiniteEvent NonFiniteCourse::TakeBad(const NonFiniteRow& row) {
  // If the fall of the scale belongs to the row before, that row was skipped, and so is this one.
  const bool answers = Answers(row);
  const bool reported = answers && reported_at_ > 0;
  if (answers) {
    ++skipped_;
    Forget();
  }
  if (row.skipped && kind_ != Kind::kEvaluation && !faulty_) {
    ++skipped_;
    if (++skipped_streak_ == 1 && !answers) Begin(row);
    newest_ = row.step;
    count_ += row.bad;
    if (reported) return NonFiniteEvent::kSkipped;
    if (finite_rows_ == 0 || skipped_streak_ < kSkippedForGood) return NonFiniteEvent::kNothing;
    return Lasts();
  }
  if (!faulty_ && streak_ == 0) Begin(row);
  ++streak_;
  newest_ = row.step;
  count_ += row.bad;
  switch (kind_) {
    case Kind::kTraining:
      if (row.norm_lost) cycles_ = 0;  // the step was applied
      if (regular() && streak_ <= cycle_.second) return NonFiniteEvent::kNothing;
      if (regular()) {
        cycles_ = 0;
        reported_at_ = 0;
        Begin(row);
        count_ = row.bad;
      }
      faulty_ = true;
      return Lasts();
    case Kind::kEvaluation:
      return streak_ > longest_healed_ ? Lasts() : NonFiniteEvent::kNothing;
    case Kind::kNorm:
      break;
  }
  const uint64_t enough = finite_rows_ == 0 ? kLastingAtBegin : kLastingRows;
  return row.loss_lost || streak_ >= enough || reported_at_ > 0 ? Lasts()
                                                                : NonFiniteEvent::kNothing;
}

NonFiniteEvent NonFiniteCourse::TakeGood(const NonFiniteRow& row) {
  const NonFiniteEvent states = streak_ > 0 ? Healed(row) : NonFiniteEvent::kNothing;
  ++finite_rows_;
  ++finite_streak_;
  skipped_streak_ = 0;
  if (!faulty_) before_ = row.finite;
  return states;
}

// Handles a finite row after bad ones.
NonFiniteEvent NonFiniteCourse::Healed(const NonFiniteRow& row) {
  const uint64_t streak = streak_;
  const bool reported = reported_at_ > 0;
  if (Answers(row)) {
    ++skipped_;
    Forget();
    return reported ? NonFiniteEvent::kSkipped : NonFiniteEvent::kNothing;
  }
  if (kind_ == Kind::kTraining) {
    streak_ = 0;
    const bool was_regular = regular();
    CountCycle(streak);
    // The value in step 0 is often a placeholder. If finite and bad values alternate regularly, the
    // series is not due in the bad rows.
    const bool made_up = rows_ == 2 && onset_ == 0;
    if (!made_up && (was_regular || !regular())) return NonFiniteEvent::kNothing;
    faulty_ = false;
    if (!made_up) reported_at_ = 0;
    return NonFiniteEvent::kFiller;
  }
  streak_ = 0;
  longest_healed_ = std::max(longest_healed_, streak);
  if (kind_ == Kind::kEvaluation) {
    reported_at_ = 0;
    return reported ? NonFiniteEvent::kFiller : NonFiniteEvent::kNothing;
  }
  reported_at_ = 0;
  if (finite_rows_ == 0) return Note(NonFiniteEvent::kBegan);
  if (streak >= kLastingRows) return NonFiniteEvent::kCame;
  single_ += streak;
  if (!reported && reported_) return NonFiniteEvent::kNothing;
  return Note(NonFiniteEvent::kSkipped);
}

// Counts a cycle: `bad` bad rows that a finite row has ended.
void NonFiniteCourse::CountCycle(uint64_t bad) {
  const std::pair now(finite_streak_, bad);
  cycles_ = now == cycle_ && cycles_ > 0 ? cycles_ + 1 : 1;
  cycle_ = now;
  finite_streak_ = 0;
}

NonFiniteEvent NonFiniteCourse::Note(NonFiniteEvent what) {
  reported_ = true;
  singles_reported_ = single_;
  return what;
}

// Reports the error when it begins, and each time the number of bad values has doubled.
NonFiniteEvent NonFiniteCourse::Lasts() {
  if (count_ < 2 * reported_at_) return NonFiniteEvent::kNothing;
  reported_at_ = count_;
  return NonFiniteEvent::kLasts;
}

NonFiniteEvent NonFiniteCourse::End() {
  if (streak_ > 0 && reported_at_ == 0 && kind_ == Kind::kNorm) {
    const bool scaler = scaled_ || single_ > 0;
    if (finite_rows_ > 0 && streak_ < kLastingRows && scaler) return Note(NonFiniteEvent::kSkipped);
    reported_at_ = count_;
    return NonFiniteEvent::kLasts;
  }
  // No step of the attempt was applied.
  if (finite_rows_ == 0 && skipped_streak_ >= kLastingAtBegin && reported_at_ == 0) {
    reported_at_ = count_;
    return NonFiniteEvent::kLasts;
  }
  if (reported_at_ > 0 && count_ > reported_at_) {
    reported_at_ = count_;
    return NonFiniteEvent::kLasts;
  }
  const bool often =
      rows_ >= kManyRows && single_ >= kOftenShare && single_ * 100 > kOftenShare * rows_;
  if (kind_ == Kind::kNorm && reported_at_ == 0 && often) return NonFiniteEvent::kCame;
  if (single_ > singles_reported_ && streak_ == 0) return Note(NonFiniteEvent::kSkipped);
  return NonFiniteEvent::kNothing;
}

}  // namespace plumbline::analysis
