#include "audit/learn/learner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

using ProfileList = std::vector<const RunProfile*>;

constexpr uint64_t kFewestNumbers = 8;  // of a subject, per run
constexpr double kLeastMargin = 1;      // in widths of the interval of all runs
constexpr double kMarginPerExcess = 2;  // per width by which a held-back run was outside
constexpr double kMostExcess = 2;       // beyond it the subject has no usable bounds
constexpr double kWide = 10;            // largest over smallest positive number
constexpr double kMostInARow = 5;       // steps of an unchanged value, or of equal ranks

bool IsBand(Measure measure) { return measure == Measure::kRange || measure == Measure::kRatio; }

ProfileList WithoutOne(const ProfileList& runs, size_t out) {
  ProfileList rest = runs;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
  return rest;
}

// Returns the subject's intervals; empty if some run lacks it or has too few numbers.
std::vector<Interval> IntervalsOf(const Subject& subject, const ProfileList& runs) {
  std::vector<Interval> intervals;
  for (const RunProfile* run : runs) {
    const auto found = run->find(subject);
    if (found == run->end() || found->second.count < kFewestNumbers) return {};
    intervals.push_back(found->second);
  }
  return intervals;
}

Interval UnionOf(const std::vector<Interval>& of, size_t without) {
  Interval all;
  for (size_t i = 0; i < of.size(); ++i) {
    if (i == without) continue;
    all.low = std::min(all.low, of[i].low);
    all.high = std::max(all.high, of[i].high);
    all.count += of[i].count;
  }
  return all;
}

// Returns the margin of a band: by how far each run is outside the others' interval, in widths of
// that interval, decides it. Returns nothing if some run is too far outside.
std::optional<double> MarginOf(const std::vector<Interval>& of) {
  double most = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const Interval others = UnionOf(of, i);
    const double width = others.high - others.low;
    const double excess = std::max({0.0, others.low - of[i].low, of[i].high - others.high});
    if (excess > 0 && !(width > 0)) return std::nullopt;
    if (excess > 0) most = std::max(most, excess / width);
  }
  if (!(most <= kMostExcess)) return std::nullopt;
  return kLeastMargin + kMarginPerExcess * most;
}

// Widens the interval of all runs by the margin. Returns nothing if there is none.
std::optional<Interval> Widened(const std::vector<Interval>& of) {
  const std::optional<double> margin = MarginOf(of);
  if (!margin) return std::nullopt;
  Interval all = UnionOf(of, of.size());
  const double wider = *margin * (all.high - all.low);
  all.low -= wider;
  all.high += wider;
  return all;
}

std::vector<Interval> LogarithmsOf(std::vector<Interval> of) {
  for (Interval& i : of) {
    i.low = std::log(i.low);
    i.high = std::log(i.high);
  }
  return of;
}

// Positive numbers are widened by factors, others by differences. Positive numbers of which some
// are ten times as large as others may come close to 0: a violation must be one of both kinds. A
// number that was the same in all runs stays so.
std::optional<Invariant> BandOf(const Subject& subject, const std::vector<Interval>& of) {
  const Interval all = UnionOf(of, of.size());
  if (all.low == all.high) return Invariant{subject, all.low, all.high, all.count};
  std::optional<Interval> bounds;
  if (!(all.low > 0) || all.high > kWide * all.low) {
    bounds = Widened(of);
    if (!bounds) return std::nullopt;
  }
  if (all.low > 0) {
    std::optional<Interval> factors = Widened(LogarithmsOf(of));
    if (!factors) return std::nullopt;
    factors->low = std::exp(factors->low);
    factors->high = std::exp(factors->high);
    if (!bounds) bounds = factors;
    bounds->low = std::min(bounds->low, factors->low);
    bounds->high = std::max(bounds->high, factors->high);
  }
  return Invariant{subject, bounds->low, bounds->high, all.count};
}

std::optional<Invariant> BoundsOf(const Subject& subject, const ProfileList& runs) {
  const std::vector<Interval> of = IntervalsOf(subject, runs);
  if (of.empty()) return std::nullopt;
  if (IsBand(subject.measure)) return BandOf(subject, of);
  const Interval all = UnionOf(of, of.size());
  const bool rows = subject.measure == Measure::kStill || subject.measure == Measure::kAlike;
  if (rows) {
    if (all.high > kMostInARow) return std::nullopt;
    return Invariant{subject, 0, 3 * all.high + 3, all.count};
  }
  if (!(all.high <= 0)) return std::nullopt;
  return Invariant{subject, -INFINITY, 0, all.count};
}

bool HoldsIn(const Invariant& invariant, const RunProfile& run) {
  const auto found = run.find(invariant.subject);
  return found == run.end() ||
         (invariant.Holds(found->second.low) && invariant.Holds(found->second.high));
}

// Returns the subjects that are bounded whichever run is held back, and that this run confirms.
std::vector<Invariant> Confirmed(const ProfileList& runs, uint64_t* dropped) {
  std::vector<Invariant> kept;
  for (const auto& [subject, interval] : *runs.front()) {
    const std::optional<Invariant> all = BoundsOf(subject, runs);
    if (!all) continue;
    bool confirmed = true;
    for (size_t i = 0; i < runs.size() && confirmed; ++i) {
      const std::optional<Invariant> others = BoundsOf(subject, WithoutOne(runs, i));
      confirmed = others && HoldsIn(*others, *runs[i]);
    }
    if (confirmed) {
      kept.push_back(*all);
    } else {
      ++*dropped;
    }
  }
  return kept;
}

}  // namespace

absl::StatusOr<Invariants> Learn(const ProfileList& runs) {
  if (runs.size() < kFewestRuns) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected at least ", kFewestRuns,
        " healthy runs (bounds are confirmed on runs that are held back), found ", runs.size()));
  }
  Invariants out;
  out.runs = runs.size();
  out.list = Confirmed(runs, &out.dropped);
  if (out.list.empty())
    return absl::InvalidArgumentError(
        "expected series that all runs share, with 8 values or more in each, found no relation "
        "that held in all of them");
  out.held_back = runs.size();
  for (size_t i = 0; i < runs.size(); ++i) {
    uint64_t unused = 0;
    const std::vector<Invariant> taught = Confirmed(WithoutOne(runs, i), &unused);
    const bool alarm = std::any_of(taught.begin(), taught.end(), [&](const Invariant& invariant) {
      return !HoldsIn(invariant, *runs[i]);
    });
    out.alarms += alarm ? 1 : 0;
  }
  return out;
}

}  // namespace plumbline::audit
