#include "analysis/routing/policies/bucket.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>

namespace plumbline::analysis {
namespace {

constexpr int64_t kMostChoicesInQueues = 1 << 14, kMostOfCell = 4096;
// Number of choices of a first test that refutes most cells.
constexpr size_t kFirstLook = 128;

enum class Clock { kPlace, kChoices, kPosition };
constexpr Clock kClocks[] = {Clock::kPlace, Clock::kChoices, Clock::kPosition};

struct Requested {
  double time;
  bool kept;
  bool judged;
  bool fresh;  // the bucket is full again because another sequence begins
};
using Queued = std::vector<Requested>;

// The smallest wait of a refused choice and the largest of an admitted one. Neither falls as the
// period grows. A bucket gains one token per period and saves up to its size. It admits a choice if
// the time at which it will have gained all tokens that it gave away is ahead by at most its size.
// Each wait is a convex function of the period: a maximum of lines.
struct Waits {
  double refused = HUGE_VAL, admitted = -HUGE_VAL;
  size_t least_refused = 0;   // index of the choice with that wait
  double admitted_slope = 0;  // number of periods in the largest admitted wait
  double watched = 0;         // the wait of `watch`
};
Waits WaitsOf(const Queued& cell, size_t most, double period, size_t watch = SIZE_MAX) {
  Waits waits;
  double paid = -HUGE_VAL, periods = 0;
  for (size_t i = 0; i < std::min(most, cell.size()); ++i) {
    const Requested& x = cell[i];
    if (x.fresh) paid = -HUGE_VAL;
    const double wait = std::max(paid - x.time, 0.0);
    if (i == watch) waits.watched = wait;
    if (!x.kept) {
      if (wait < waits.refused) {
        waits.refused = wait;
        waits.least_refused = i;
      }
      continue;
    }
    if (x.judged && wait > waits.admitted) {
      waits.admitted = wait;
      waits.admitted_slope = wait > 0 ? periods : 0;
    }
    periods = paid > x.time ? periods + 1 : 1;
    paid = std::max(paid, x.time) + period;
  }
  return waits;
}

double Span(const Queued& cell) {
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (const Requested& x : cell) {
    least = std::min(least, x.time);
    most = std::max(most, x.time);
  }
  return most - least + 1;
}

constexpr double kApart = 1e-9;

// Returns true if no period from `from` to `to` separates them. The wait refused first at `middle`
// is below its chord, and the wait admitted last is above its tangent, because both are convex.
bool NoneBetween(const Queued& cell, size_t most, double from, double to, double middle,
                 const Waits& at) {
  const auto apart = [&](double period) {
    const double chord = WaitsOf(cell, most, period, at.least_refused).watched;
    return chord - (at.admitted + at.admitted_slope * (period - middle));
  };
  return apart(from) <= kApart && apart(to) <= kApart;
}

// Returns true if some period separates the refused waits from the others. Between two periods the
// smallest refused wait is at most that of the longer period, and the largest admitted wait is at
// least that of the shorter one. So intervals that both ends exclude are skipped. If the search is
// given up, the bucket is not excluded.
bool Fits(const Queued& cell, size_t most) {
  constexpr int kMostTries = 1000;
  constexpr double kShortest = 0.25, kPieces = 32;
  struct Between {
    double from, to;
    Waits at_from, at_to;
  };
  const double ratio = std::pow(2 * Span(cell) / kShortest, 1 / kPieces);
  std::vector<Between> open;
  Waits at = WaitsOf(cell, most, kShortest);
  for (double period = kShortest; period < 2 * Span(cell); period *= ratio) {
    const Waits next = WaitsOf(cell, most, period * ratio);
    open.push_back({period, period * ratio, at, next});
    at = next;
  }
  for (int tries = 0; !open.empty(); ++tries) {
    const Between b = open.back();
    open.pop_back();
    if (b.at_to.refused - b.at_from.admitted <= kApart || b.to - b.from < 1e-12 * b.to) continue;
    if (tries == kMostTries) return true;
    const double middle = (b.from + b.to) / 2;
    at = WaitsOf(cell, most, middle);
    if (at.refused - at.admitted > kApart) return true;
    if (NoneBetween(cell, most, b.from, b.to, middle, at)) continue;
    open.push_back({b.from, middle, b.at_from, at});
    open.push_back({middle, b.to, at, b.at_to});
  }
  return false;
}

// Removes the choices after the last admission, because the capacity may have refused them. If
// nothing else was refused, empties the cell.
void LeaveOutTheLast(Queued& cell) {
  if (cell.size() < kMostOfCell) {
    while (!cell.empty() && !cell.back().kept) cell.pop_back();
  }
  const auto refused = [](const Requested& x) { return !x.kept; };
  if (std::none_of(cell.begin(), cell.end(), refused)) cell.clear();
}

// Returns the refusing cells' choices along a queue, without the last refusals. In a large call,
// uses the first cells only.
std::vector<Queued> CellsAlong(const RoutingCase& c, const Saturation& s, const TimeQueue& queue,
                               Clock clock) {
  std::vector<int32_t> number(s.cells.size(), -1);
  int32_t count = 0;
  int64_t choices = 0;
  for (size_t i = 0; i < s.cells.size() && choices < kMostChoicesInQueues; ++i) {
    if (s.cells[i].refused == 0) continue;
    number[i] = count++;
    choices += s.cells[i].candidates();
  }
  std::vector<Queued> cells(static_cast<size_t>(count));
  std::vector<std::unordered_map<int64_t, uint8_t>> seen(cells.size());  // per cell: its sequences
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const QueuedRow row = queue.At(c, place);
    for (const Choice& choice : row.choices) {
      const int32_t at = number[CellOfToken(c, choice.token, choice.expert)];
      if (at < 0) continue;
      Queued& cell = cells[static_cast<size_t>(at)];
      if (cell.size() >= kMostOfCell) continue;
      const auto token = static_cast<size_t>(choice.token);
      const double time = clock == Clock::kPlace     ? static_cast<double>(place)
                          : clock == Clock::kChoices ? static_cast<double>(cell.size())
                                                     : static_cast<double>(c.position[token]);
      const bool fresh = clock == Clock::kPosition &&
                         seen[static_cast<size_t>(at)].try_emplace(c.sequence[token], 1).second;
      cell.push_back({time, choice.kept, row.judged, fresh});
    }
  }
  for (Queued& cell : cells) LeaveOutTheLast(cell);
  return cells;
}

// Returns log2 of the number of kept sets that a cell could have had, less log2 of the rates and
// sizes.
double Surplus(const Queued& cell) {
  const auto n = static_cast<double>(cell.size());
  const auto kept = static_cast<double>(
      std::count_if(cell.begin(), cell.end(), [](const Requested& x) { return x.kept; }));
  return Log2Choose(n, kept) - 2 * std::log2(n);
}

bool AllFit(const std::vector<Queued>& cells) {
  double surplus = 0;
  for (const Queued& cell : cells) {
    if (cell.empty()) continue;
    if (!Fits(cell, kFirstLook)) return false;
    if (cell.size() > kFirstLook && !Fits(cell, cell.size())) return false;
    surplus += Surplus(cell);
  }
  return surplus > 0;
}

}  // namespace

bool BucketsFit(const RoutingCase& c, const Saturation& s, const std::vector<TimeQueue>& queues) {
  for (const TimeQueue& queue : queues) {
    for (const Clock clock : kClocks) {
      // If sequences are mixed in a queue, each advances in parallel.
      if (clock == Clock::kPosition && queue.name != "batch-major") continue;
      if (AllFit(CellsAlong(c, s, queue, clock))) return true;
    }
  }
  return false;
}

}  // namespace plumbline::analysis
