// Order of the calls: Take (a point arrives), JudgeOne (if nothing is open), OpenAt, Measure and
// GoOn (if an excursion is open), Decide (its kind), Back and Close (its end).
#include "analysis/series/excursions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace plumbline::analysis {
namespace {

constexpr double kThird = 1.0 / 3;
constexpr double kStandsOut = 2.5;
// Longest distance of the onset from the point that opens an excursion.
constexpr uint64_t kLongestRun = 128;

// Returns the expected level d points later. If the level falls, it follows a curve in the
// logarithm of the steps, and never exceeds `level`.
double Expected(double level, double slope, uint64_t d, uint64_t t) {
  const auto seen = static_cast<double>(t);
  const auto on = static_cast<double>(std::min<uint64_t>(d, 128));
  return level + std::min(slope, 0.0) * seen * std::log1p(on / seen);
}

// Returns the value that a slow rise may have reached at its d-th point after the onset. The slow
// rise continues at 4 % per point, or at the pace of the window if that is faster: b plus three
// standard errors, each 1.2533 s sqrt(2/(w/2)) / (w/2), of the difference of two medians of w/2
// points. Up to the onset, either no point was 3 s above the level, or the rise was faster than the
// level, which lags by half of its points.
double SlowRise(const Excursion& is, uint64_t d) {
  // The rise reaches at most eight times the level, if there were enough earlier points.
  constexpr double kSlow = 0.04, kMost = 7;
  constexpr double kErrors = 3 * 1.2533 * 4;
  const auto w = static_cast<double>(is.window);
  const double slope = is.slope + kErrors * is.scale / (w * std::sqrt(w));
  const double pace = std::max(slope, PartOf(kSlow, is.level, is.scale, is.linear));
  const double after = (std::max(8.0, w / 4) + 1) / 2;
  const double before = std::min(pace * after, std::max(3 * is.scale, slope * after));
  const double rise = before + pace * static_cast<double>(d);
  if (is.compared < Excursion::kEnoughBefore) return rise;
  return std::min(rise, PartOf(kMost, is.level, is.scale, is.linear));
}

// Returns true if an excursion fell by at least a tenth from its first quarter to its last one, and
// still falls in its second half: the 99 % Theil-Sen interval of the medians of 16 blocks is below
// 0. A disturbed run that learns again falls like this (pruned weights, other data). A diverged run
// stays or grows.
bool FallsBack(const std::vector<double>& values, double stood, double stands) {
  constexpr size_t kBlocks = 16;
  const size_t half = values.size() / 2, block = half / kBlocks;
  if (block == 0 || !(stands <= 0.9 * stood)) return false;
  std::vector<double> medians, places;
  for (size_t b = 0; b < kBlocks; ++b) {
    const size_t from = values.size() - (kBlocks - b) * block;
    std::vector<double> part(values.begin() + static_cast<ptrdiff_t>(from),
                             values.begin() + static_cast<ptrdiff_t>(from + block));
    medians.push_back(MedianOf(part));
    places.push_back(static_cast<double>(b));
  }
  return TheilSen(places, medians).high < 0;
}

double MedianOfPart(const std::vector<double>& values, size_t from, size_t count) {
  std::vector<double> part(values.begin() + static_cast<ptrdiff_t>(from),
                           values.begin() + static_cast<ptrdiff_t>(from + count));
  return MedianOf(part);
}

// Returns true if the loss itself rose from the first quarter of an excursion to the last one: by a
// fifth of its excess over the level at the onset, and by 3 standard errors of the two medians. The
// excess alone is not enough, because it also grows if the expected level falls.
bool RoseOn(double stood, double stands, double scale, size_t quarter) {
  constexpr double kErrors = 3 * 1.2533;
  const double noise = kErrors * scale * std::sqrt(2 / static_cast<double>(quarter));
  return stands - stood >= std::max(0.2 * stood, noise);
}

double LinearUnit(double level, double scale) {
  return std::max(std::fabs(level), Excursion::kMeans * scale);
}

}  // namespace

const char* NameOf(ExcursionKind kind) {
  switch (kind) {
    case ExcursionKind::kSpike:
      return "spike";
    case ExcursionKind::kRecovered:
      return "recovered";
    case ExcursionKind::kLevelShift:
      return "level-shift";
    case ExcursionKind::kDivergence:
      return "divergence";
  }
  return "spike";
}

double PartOf(double share, double level, double scale, bool linear) {
  return linear ? share * LinearUnit(level, scale) : std::log1p(share);
}

double ShareOf(double part, double level, double scale, bool linear) {
  return linear ? part / LinearUnit(level, scale) : std::expm1(part);
}

double Excursion::value(double y) const { return linear ? y : std::exp(y); }
double Rise::value(double y) const { return linear ? y : std::exp(y); }

void Excursions::Take(const Point& point, std::vector<SeriesEvent>* events, Settled* settled) {
  const uint64_t ordinal = points_++;
  const bool was_open = static_cast<bool>(open_);
  if (awaited_) Await(point);
  if (was_open) {
    above_[ordinal % kAbove] = ExcessOf(*open_, point.y);
    Measure(point);
    GoOn(events, settled);
  } else if (window_.count() < LevelWindow::kFewest) {
    above_[ordinal % kAbove] = NAN;
    Push(point);
    run_ = window_.count();
  } else {
    JudgeOne(point, events, settled);
  }
  ReportSettled(settled);
}

// Opens an excursion at once if a point is far enough from the level. Otherwise opens one if 7 of
// the 9 points after a far point are away.
void Excursions::JudgeOne(const Point& point, std::vector<SeriesEvent>* events, Settled* settled) {
  const uint64_t ordinal = points_ - 1, at = window_.count();
  const double level = window_.Level(), above = point.y - level;
  above_[ordinal % kAbove] = above;
  const uint64_t run = above >= 3 * window_.Floor(level) ? run_ : at + 1;
  for (Waiting& waiting : waiting_) {
    const double expected =
        Expected(waiting.frame.level, waiting.frame.slope, at - waiting.at, waiting.ordinal);
    ++waiting.seen;
    if (point.y - expected >= 3 * waiting.frame.scale) ++waiting.above;
  }
  Frame frame;
  const bool far = window_.Far(point.y, level, &frame);
  if (far) {
    const uint64_t from = std::max(run_, at - std::min(at, kLongestRun));
    waiting_.push_back({frame, at, ordinal, from, 1, 1});
  }
  Push(point);
  run_ = run;
  for (const Waiting& waiting : waiting_) {
    if (waiting.above < 7) continue;
    return OpenAt(Frame(waiting.frame), waiting.at, false, events, settled);
  }
  if (far && above >= 8 * frame.scale &&
      above >= PartOf(0.1, frame.level, frame.scale, window_.linear()))
    return OpenAt(frame, at, true, events, settled);
  std::erase_if(waiting_, [](const Waiting& w) { return w.seen - w.above > 2; });
}

// Reports points as settled if no excursion can still remove them.
void Excursions::ReportSettled(Settled* settled) {
  const uint64_t count = window_.count();
  uint64_t through = open_ ? count : std::max(run_, count - std::min(count, kLongestRun));
  if (!waiting_.empty()) through = std::min(through, waiting_.front().from);
  for (; reported_ < through && reported_ < count; ++reported_)
    settled->points.push_back({window_.step(reported_), window_.y(reported_)});
}

// Returns the first of the consecutive points with z >= 3 that end at `at`.
uint64_t Excursions::OnsetOf(uint64_t at) const {
  const uint64_t least = std::max({floor_, LevelWindow::kFewest, at - std::min(at, kLongestRun)});
  while (at > least) {
    const Frame frame = window_.FrameAt(at - 1);
    const double before = window_.y(at - 1) - frame.level;
    if (!(before >= 3 * frame.scale) || !(before > 0)) break;
    --at;
  }
  return at;
}

void Excursions::LookBefore(uint64_t ordinal, Excursion* is) const {
  is->before = -std::numeric_limits<double>::infinity();
  for (uint64_t i = ordinal - std::min(ordinal, kBefore); i < ordinal; ++i) {
    const double above = above_[i % kAbove];
    if (std::isnan(above)) continue;
    ++is->compared;
    is->before = std::max(is->before, above);
  }
}

// Removes the points from the onset on from the history, and measures them against the level before
// the onset.
void Excursions::OpenAt(const Frame& frame, uint64_t at, bool at_once,
                        std::vector<SeriesEvent>* events, Settled* settled) {
  const uint64_t count = window_.count(), from = OnsetOf(at);
  Open& open = open_.Set();
  open.onset = points_ - (count - from);
  open.opening = at - from;
  open.is.onset_step = window_.step(from);
  open.is.opened_step = window_.step(count - 1);
  open.is.window = frame.window;
  open.is.level = frame.level;
  open.is.scale = frame.scale;
  open.is.slope = frame.slope;
  open.is.linear = window_.linear();
  // With fewer, such as 16 points of a hinge loss, most may be non-zero by chance.
  constexpr uint64_t kShowsNoise = 24;
  open.is.scatters = frame.scatters && frame.window >= kShowsNoise;
  LookBefore(open.onset, &open.is);
  open.is.jumped =
      at_once && window_.y(at) - window_.y(at - 1) >= 0.75 * (window_.y(at) - frame.level);
  open.is.restart = open.onset < restart_until_;
  LookForRestart();
  waiting_.clear();
  std::vector<Point> points;
  for (uint64_t i = from; i < count; ++i) points.push_back({window_.step(i), window_.y(i)});
  window_.PopTo(from);
  run_ = from;
  ReportSettled(settled);
  for (const Point& point : points) Measure(point);
  open.warned = open.is.warns();
  open.doubled = open.is.doubled();
  Report(SeriesEvent::What::kOpened, events);
  GoOn(events, settled);
}

double Excursions::ExcessOf(const Open& open, double y) const {
  const uint64_t d = open.taken - std::min(open.taken, open.opening);
  return y - Expected(open.is.level, open.is.slope, d, open.onset);
}

void Excursions::Measure(const Point& point) {
  Open& open = *open_;
  Excursion& is = open.is;
  const double excess = ExcessOf(open, point.y);
  const bool led_up = open.taken < open.opening;
  ++open.taken;
  if (!open.decided) open.excess.push_back(excess);
  // A point that is not above the old level is not away, even if the level was expected to fall.
  // Near the beginning of a run, the earlier fall is a poor prediction.
  const bool above = excess >= 3 * is.scale && point.y > is.level;
  // For a divergence, only points that may be its end return to the history.
  if (is.kind == ExcursionKind::kDivergence && above) open.points.clear();
  if (is.kind != ExcursionKind::kDivergence || !above) open.points.push_back(point);
  if (!above) {
    if (!led_up) ++open.under;
    return;
  }
  open.under = 0;
  ++is.above;
  is.points = open.taken;
  is.last_step = point.step;
  is.sudden = std::max(is.sudden, excess - SlowRise(is, open.taken));
  if (excess > is.peak) {
    is.peak = excess;
    is.peak_value = is.value(point.y);
    is.peak_step = point.step;
  }
  is.lasting |= !open.is_short();
  is.outstanding |= is.peak >= kStandsOut * is.before && is.seen_enough();
  is.third |= is.peak >= PartOf(kThird, is.level, is.scale, is.linear);
}

void Excursions::GoOn(std::vector<SeriesEvent>* events, Settled* settled) {
  Open& open = *open_;
  if (open.is.warns() && !open.warned) {
    open.warned = true;
    Report(SeriesEvent::What::kGrew, events);
  }
  if (open.is.doubled() && !open.doubled) {
    open.doubled = true;
    Report(SeriesEvent::What::kDoubled, events);
  }
  if (open.under == kThree) return Back(events, settled);
  if (!open.decided && open.taken >= kBack && open.under == 0) {
    Decide();
    Report(SeriesEvent::What::kSettled, events);
    if (open.is.kind == ExcursionKind::kLevelShift) return Close(0, !open.is_short(), settled);
    if (open.is.kind == ExcursionKind::kDivergence) open.points.clear();
  }
  const bool spike = open.is.kind == ExcursionKind::kSpike;
  if (spike && open.taken >= kLongest) Close(open.points.size() - kBack, true, settled);
}

// Decides the kind: a spike if it shrinks, a divergence if it grows or stays a third above the old
// level, else a level shift.
void Excursions::Decide() {
  Open& open = *open_;
  Excursion& is = open.is;
  open.decided = true;
  const size_t points = open.excess.size(), quarter = points / 4;
  if (points < 16) return;
  is.first_quarter = MedianOfPart(open.excess, 0, quarter);
  is.last_quarter = MedianOfPart(open.excess, points - quarter, quarter);
  // Computes the excess relative to the level at the onset, because it also grows if the expected
  // level falls.
  for (size_t i = 0; i < points; ++i) {
    const size_t d = i - std::min<size_t>(i, open.opening);
    open.excess[i] += Expected(is.level, is.slope, d, open.onset) - is.level;
  }
  const double stood = MedianOfPart(open.excess, 0, quarter);
  const double stands = MedianOfPart(open.excess, points - quarter, quarter);
  const bool falls = FallsBack(open.excess, stood, stands);
  open.excess.clear();
  if (is.last_quarter < 0.8 * is.first_quarter) return;
  if ((is.last_quarter > 1.5 * is.first_quarter && RoseOn(stood, stands, is.scale, quarter)) ||
      (!falls && stands >= PartOf(kThird, is.level, is.scale, is.linear))) {
    is.kind = ExcursionKind::kDivergence;
  } else if (points >= 64) {
    is.kind = ExcursionKind::kLevelShift;
  }
  // As long as the rate is high, it is unknown whether the divergence will stay.
  if (is.by_schedule() && is.kind == ExcursionKind::kDivergence)
    is.kind = points >= 64 ? ExcursionKind::kLevelShift : ExcursionKind::kSpike;
}

// Handles the return: the newest points are at the level again.
void Excursions::Back(std::vector<SeriesEvent>* events, Settled* settled) {
  Open& open = *open_;
  const bool diverged = open.is.kind == ExcursionKind::kDivergence;
  if (!open.decided || diverged) open.is.kind = ExcursionKind::kRecovered;
  if (diverged) Report(SeriesEvent::What::kReturned, events);
  if (!open.decided) Report(SeriesEvent::What::kSettled, events);
  Close(!diverged && open.is_short() ? 0 : open.points.size() - open.under, false, settled);
}

// Puts the excursion's points from number `from` on back into the history. If `restart`, the
// history starts with them.
void Excursions::Close(size_t from, bool restart, Settled* settled) {
  const std::vector<Point> points = std::move(open_->points);
  if (OpenIsAwaited()) KeepAwaited();
  open_.Reset();
  if (restart) {
    window_.PopTo(0);
    reported_ = 0;
    settled->restart = settled->points.size();
  }
  for (size_t i = from; i < points.size(); ++i) Push(points[i]);
  run_ = floor_ = window_.count();
}

void Excursions::Report(SeriesEvent::What what, std::vector<SeriesEvent>* events) const {
  SeriesEvent& event = events->emplace_back();
  event.what = what;
  event.excursion = open_->is;
}

void Excursions::Settle(std::vector<SeriesEvent>* events, Settled* settled) {
  waiting_.clear();
  if (open_ && open_->under > 0) {
    Back(events, settled);
  } else if (open_) {
    Open& open = *open_;
    open.is.ended = true;
    if (!open.decided) {
      Decide();
      Report(SeriesEvent::What::kSettled, events);
    }
    const bool shift = open.is.kind == ExcursionKind::kLevelShift && !open.is_short();
    const bool diverged = open.is.kind == ExcursionKind::kDivergence;
    const bool keep = shift || (!diverged && open.is_short());
    Close(keep ? 0 : open.points.size(), shift, settled);
  }
  run_ = floor_ = window_.count();
  ReportSettled(settled);
}

void Excursions::GoLinear() {
  awaited_.Reset();
  const double level = window_.count() > 0 ? window_.Level() : 0;
  window_.GoLinear();
  for (double& above : above_) above = std::exp(level) * std::expm1(above);
}

}  // namespace plumbline::analysis
