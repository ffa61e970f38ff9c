// Handles excursions that a restart of the rate's schedule causes. They are judged when the rate is
// back. Until then the loss may be far above its level at the low rate, because the rate determines
// it.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "analysis/series/excursions.h"

namespace plumbline::analysis {
namespace {

constexpr double kRestartTenth = 0.1, kRestartThird = 1.0 / 3;

}  // namespace

void Excursions::FollowRestart(const ScheduleRestart& restart) {
  if (!cycle_ || cycle_->restart.step != restart.step) {
    cycle_.Set({restart, points_, points_});
    awaited_.Reset();
  }
  cycle_->restart.to = restart.to;
  cycle_->rose = points_;
}

// Marks the open excursion as caused by the restart if it begins while the rate rises, or so soon
// after it that the level, a median of 32 points, could not follow. Because of noise, it may begin
// up to three points earlier.
void Excursions::LookForRestart() {
  Open& open = *open_;
  if (!cycle_ || open.onset + kThree < cycle_->from || open.onset > cycle_->rose + kFollows) return;
  open.is.scheduled = true;
  open.is.cause = cycle_->restart;
  open.is.slope = 0;  // the slope at the low rate does not predict the next values
  if (!awaited_) awaited_.Set(Awaited{.is = open.is});
}

// Compares with the level before the restart, even if the history has changed since.
void Excursions::Await(const Point& point) {
  Awaited& is = *awaited_;
  const double excess = point.y - is.is.level;
  const bool away = excess >= 3 * is.is.scale && excess > 0;
  const double tenth = PartOf(kRestartTenth, is.is.level, is.is.scale, is.is.linear);
  is.under = away ? 0 : is.under + 1;
  is.away = away && excess >= tenth ? is.away + 1 : 0;
  std::rotate(is.last.begin(), is.last.begin() + 1, is.last.end());
  is.last.back() = excess;
  is.step = point.step;
  if (is.under == kThree) awaited_.Reset();
}

bool Excursions::OpenIsAwaited() const {
  return open_ && awaited_ && open_->is.onset_step == awaited_->is.onset_step;
}

void Excursions::KeepAwaited() { awaited_->is = open_->is; }

void Excursions::RateIsBack(std::vector<SeriesEvent>* events, Settled* settled) {
  cycle_.Reset();
  if (!awaited_) return;
  if (OpenIsAwaited()) KeepAwaited();
  const Awaited awaited = *std::exchange(awaited_, {});
  const bool same = open_ && open_->is.onset_step == awaited.is.onset_step;
  if (awaited.away < kThree) return;
  // The loss did not come back.
  Excursion is = awaited.is;
  is.overstayed = true;
  is.last_step = awaited.step;
  std::array<double, kThree> last = awaited.last;
  is.last_quarter = MedianOf(last);
  if (is.first_quarter == 0) is.first_quarter = is.peak;
  const bool third = is.last_quarter >= PartOf(kRestartThird, is.level, is.scale, is.linear);
  is.kind = third ? ExcursionKind::kDivergence : ExcursionKind::kLevelShift;
  // If the excursion is no longer open, its points are already in the history.
  is.ended = !same;
  SeriesEvent& event = events->emplace_back();
  event.what = SeriesEvent::What::kSettled;
  event.excursion = is;
  if (!same) return;
  open_->is = is;
  open_->decided = true;
  open_->warned = is.warns();
  if (third) {
    open_->points.clear();
  } else {
    Close(0, !open_->is_short(), settled);
  }
  ReportSettled(settled);
}

void Excursions::ForgetRate() {
  cycle_.Reset();
  awaited_.Reset();
}

}  // namespace plumbline::analysis
