#include "analysis/series/detector.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

constexpr uint64_t kMarkEvery = 1024;
constexpr size_t kMostMarks = 6;

}  // namespace

double SeriesDetector::Y(double value) const { return linear_ ? value : std::log(value); }

void SeriesDetector::Take(uint32_t attempt, int64_t step, double value,
                          std::vector<SeriesEvent>* events) {
  if (attempt != attempt_) {
    attempt_ = attempt;
    Resume(step, events);
  }
  if (!std::isfinite(value)) {
    ++not_finite_;
    return;
  }
  if (value <= 0 && !linear_) {
    linear_ = true;
    GoLinear(&now_, events);
  }
  Judge(step, value, events);
  Keep(step, value);
}

void SeriesDetector::Judge(int64_t step, double value, std::vector<SeriesEvent>* events) {
  ++now_.points;
  now_.last_step = step;
  if (now_.points <= now_.calm_from) now_.calm_step = step;
  const double y = Y(value);
  if (!linear_) now_.stall.Take(step, y);
  now_.excursions.Take({step, y}, events, &settled_);
  Feed(events);
}

void SeriesDetector::Feed(std::vector<SeriesEvent>* events) {
  for (size_t i = 0; i < settled_.points.size(); ++i) {
    if (settled_.restart == i) now_.riser = Riser(linear_);
    const Excursions::Point& point = settled_.points[i];
    // Also skips points that settle later. If the loss rises with the rate, the best level is the
    // one before the rise.
    if (now_.points <= now_.calm_from || point.step <= now_.calm_step) continue;
    const std::optional<Rise> rise = now_.riser.Take(point.step, point.y);
    if (!rise && !now_.riser.fell()) continue;
    SeriesEvent& event = events->emplace_back();
    event.what = rise ? SeriesEvent::What::kRise : SeriesEvent::What::kFell;
    event.rise = rise ? *rise : now_.riser.Stand(point.step);
  }
  settled_.points.clear();
  settled_.restart.reset();
}

void SeriesDetector::RestartRate() {
  now_.excursions.RestartRate();
  now_.riser = Riser(linear_);
  now_.calm_from = now_.points + Excursions::kRestart;
}

void SeriesDetector::RateIsBack(std::vector<SeriesEvent>* events) {
  now_.excursions.RateIsBack(events, &settled_);
  Feed(events);
}

void SeriesDetector::End(std::vector<SeriesEvent>* events) {
  now_.excursions.Settle(events, &settled_);
  Feed(events);
}

ExplosionFigures SeriesDetector::LookForExplosion() const {
  if (linear_ && now_.points > newest_.size()) return {};  // the span of all points is not known
  return now_.stall.LookForExplosion(NewestYs(), linear_);
}

LastingRise SeriesDetector::FindLastingRise() const {
  const bool whole = now_.points <= std::min(newest_.size(), kMostForLasting);
  if (!whole || now_.calm_from > 0) return {};
  return LookForLastingRise(NewestYs(), linear_);
}

std::vector<SeriesDetector::Point> SeriesDetector::Newest() const {
  std::vector<Point> newest;
  for (size_t i = 0; i < newest_.size(); ++i) newest.push_back(newest_[i]);
  return newest;
}

EarlyBreak SeriesDetector::LookForEarlyBreak() const {
  if (linear_ || now_.points > newest_.size()) return {};
  return analysis::LookForEarlyBreak(NewestYs());
}

PlungeFigures SeriesDetector::LookForPlunge() const {
  return linear_ ? analysis::LookForPlunge(NewestYs()) : PlungeFigures{};
}

std::vector<SeriesDetector::Point> SeriesDetector::NewestYs() const {
  std::vector<Point> newest;
  for (size_t i = 0; i < newest_.size(); ++i)
    newest.emplace_back(newest_[i].first, Y(newest_[i].second));
  return newest;
}

void SeriesDetector::Keep(int64_t step, double value) {
  newest_.Add({step, value});
  if (++kept_ < kMarkEvery) return;
  kept_ = 0;
  marks_.push_back(now_);
  ThinMarks();
}

// If three consecutive marks are closer together than the newest of them is to the current point,
// erases the middle one. The distances between the marks then roughly double from one to the next.
void SeriesDetector::ThinMarks() {
  if (marks_.size() <= kMostMarks) return;
  for (size_t i = marks_.size() - 4; i > 0; --i) {
    if (marks_[i + 1].points - marks_[i - 1].points > now_.points - marks_[i + 1].points) continue;
    marks_.erase(marks_.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
  marks_.erase(marks_.begin() + 1);
}

// Restores the newest state before `step`, then replays the points between that state and `step`.
void SeriesDetector::Resume(int64_t step, std::vector<SeriesEvent>* events) {
  End(events);  // findings up to here remain valid
  now_.excursions.ForgetRate();
  if (now_.points == 0 || now_.last_step < step) return;
  // Number of points that are older than those in newest_.
  const uint64_t forgotten = now_.points - newest_.size();
  while (!newest_.empty() && newest_.back().first >= step) newest_.DropNewest();
  while (!marks_.empty() && marks_.back().last_step >= step) marks_.pop_back();
  now_ = marks_.empty() ? State() : marks_.back();
  now_.excursions.ForgetRate();
  // Events of points that were already judged; these are discarded.
  std::vector<SeriesEvent> reported;
  if (linear_ != now_.excursions.linear()) GoLinear(&now_, &reported);
  kept_ = 0;
  if (now_.points < forgotten) newest_.Clear();
  const size_t skip = now_.points < forgotten ? 0 : now_.points - forgotten;
  for (size_t i = skip; i < newest_.size(); ++i, ++kept_)
    Judge(newest_[i].first, newest_[i].second, &reported);
  End(&reported);
}

void SeriesDetector::GoLinear(State* state, std::vector<SeriesEvent>* events) {
  Excursions::Settled settled;
  state->excursions.Settle(events, &settled);
  state->excursions.GoLinear();
  state->riser = Riser(true);
  state->stall = Stall();
}

}  // namespace plumbline::analysis
