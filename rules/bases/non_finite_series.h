// One series of health/loss-non-finite over its ranks: what a row tells of it, its course of values
// that are not finite, and its zeros. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
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
  double largest = 0;        // of a training loss, in size
  bool zero_before = false;  // it was 0 now and then
  uint64_t values = 0;
  bool found = false;
  uint64_t closed_over = 0;  // steps
  std::set<uint32_t> ranks;
  int64_t step_first = 0, step_last = 0;
  std::vector<uint32_t> bad_ranks;  // of the newest bad row
  // Of an attempt that ended with an error, and the first step of the one that follows.
  NonFiniteCourse failed;
  int64_t resumed_at = -1;  // -1: none did

  static constexpr size_t kMostRanks = 1024;  // named

  void Begin(SeriesRole its_role, int64_t step);
  // The step's values of all ranks, as a row. `bad`: the ranks with one that is not finite.
  NonFiniteRow Gather(const SiteStep& step, std::vector<uint32_t>* bad);
  // Rows of finite values, not 0 where it is a training loss, while the course is calm.
  void TakePlain(const ScalarRows& rows, const ScalarColumn& column, size_t first, size_t count);
  // How many rows from `first` on, `most` of them, TakePlain may take.
  size_t PlainRows(const ScalarRows& rows, const ScalarColumn& column, size_t first,
                   size_t most) const;

  enum class Zero : uint8_t { kNothing, kTold, kOver };
  // A training loss's row, with the gradient norm beside it. kOver: it is above 0 again, and
  // `before` is what was told.
  Zero TakeZero(const NonFiniteRow& row, ZeroLoss::Norm norm, bool game, ZeroLoss* before);
  // The attempt ends; `next_step`: the first step of the next one.
  void EndAttempt(int64_t next_step) {
    if (!course.lasts()) return;
    failed = course;
    resumed_at = next_step;
  }
  // What failed is over: the newest attempt has several values, all of them finite.
  bool healed() const {
    constexpr uint64_t kRows = 3;
    return resumed_at >= 0 && course.attempt() != failed.attempt() && course.calm() &&
           course.not_finite() == 0 && course.rows() >= kRows;
  }
  // Whether its zeros are news now. `game`: rewards are recorded.
  bool LooksMasked(bool game, bool at_the_end) const;

  void Persist(Archive& a) {
    a(role, course, zero, largest, zero_before, values, found, closed_over, ranks, step_first,
      step_last, bad_ranks, failed, resumed_at);
  }
};

// Which norm says most of a row: one that is lost, then a number above 0, then 0.
ZeroLoss::Norm Stronger(ZeroLoss::Norm a, ZeroLoss::Norm b);
ZeroLoss::Norm NormOf(const NonFiniteRow& row);

}  // namespace plumbline::rules
