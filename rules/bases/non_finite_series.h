// One series of health/loss-non-finite over its ranks: the content of a row, its course of
// non-finite values, and its zeros. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/bases/non_finite_words.h"

namespace plumbline::rules {

struct NonFiniteSeries {
  SeriesRole role = SeriesRole::kNone;
  NonFiniteCourse course;
  ZeroLoss zero;
  double largest = 0;          // largest magnitude of a training loss
  bool zero_before = false;    // it was 0 sometimes
  std::vector<double> newest;  // the newest kNewest values of a training loss that are not 0
  uint64_t values = 0;
  bool found = false;
  uint64_t closed_over = 0;  // steps
  std::set<uint32_t> ranks;
  int64_t step_first = 0, step_last = 0;
  std::vector<uint32_t> bad_ranks;  // of the newest bad row
  // The course of an attempt that ended with an error, and the first step of the next one.
  NonFiniteCourse failed;
  int64_t resumed_at = -1;  // -1 if there was none

  static constexpr size_t kMostRanks = 1024;  // maximum number of ranks that are named
  static constexpr size_t kNewest = 8;

  void Begin(SeriesRole its_role, int64_t step);
  // Returns the step's values of all ranks as a row. `bad` gets the ranks with a non-finite value.
  NonFiniteRow Gather(const SiteStep& step, std::vector<uint32_t>* bad);
  // Takes rows of finite values while the course is calm. A training loss must not be 0.
  void TakePlain(const ScalarRows& rows, const ScalarColumn& column, size_t first, size_t count);
  // Returns how many rows from `first` on, at most `most`, TakePlain may take.
  size_t PlainRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                   size_t most) const;

  enum class Zero : uint8_t { kNothing, kReported, kOver };
  // Takes a training loss's row with the gradient norm. If it is above 0 again, returns kOver and
  // sets `before` to what was reported.
  Zero TakeZero(const NonFiniteRow& row, ZeroLoss::Norm norm, bool may_be_zero, ZeroLoss* before);
  // Ends the attempt. `next_step` is the first step of the next one.
  void EndAttempt(int64_t next_step) {
    if (!course.lasts()) return;
    failed = course;
    resumed_at = next_step;
  }
  // True if the failure is over: the newest attempt has several values, all of them finite.
  bool healed() const {
    constexpr uint64_t kRows = 3;
    return resumed_at >= 0 && course.attempt() != failed.attempt() && course.calm() &&
           course.not_finite() == 0 && course.rows() >= kRows;
  }
  void Keep(double value);
  // Returns true if the newest values are at a level that neither their noise nor their slope could
  // bring to 0.
  bool FallsToZero() const;
  bool StandsFarFromZero() const;
  // Returns true if its zeros must be reported now. `may_be_zero`: the loss may be 0 without a
  // fault, if no norm is lost.
  bool LooksMasked(bool may_be_zero, bool at_the_end) const;

  void Persist(Archive& a) {
    a(role, course, zero, largest, zero_before, newest, values, found, closed_over, ranks,
      step_first, step_last, bad_ranks, failed, resumed_at);
  }
};

// True for a mean that is NaN if a reward function does not apply to a batch, or an iteration has
// no episode.
bool MayLackReward(const std::string& op, SeriesRole role);
// True for a loss that is exactly 0 if each answer is right by a margin: "hinge_loss", "svm_loss".
bool HasMargin(const std::string& op);
// True for an accuracy of 1, or of 100 %.
inline bool IsAllRight(double accuracy) { return accuracy == 1 || accuracy == 100; }

// Returns the norm that is most informative about a row: a non-finite one, then a number above 0,
// then 0.
ZeroLoss::Norm Stronger(ZeroLoss::Norm a, ZeroLoss::Norm b);
ZeroLoss::Norm NormOf(const NonFiniteRow& row);

}  // namespace plumbline::rules
