#include "analysis/drift/course.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/details.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kFewestOfStretch = 4, kFewestToBound = 8, kMostStretches = 16;
constexpr double kEndsBelow = 0.25;
constexpr double kStretchErrors = 5;

// Returns the mean k3 over the tokens of the steps.
double PooledK3(std::span<const DriftPoint> points) {
  double tokens = 0, sum = 0;
  for (const DriftPoint& p : points) {
    tokens += p.tokens;
    sum += p.tokens * p.k3;
  }
  return tokens > 0 ? sum / tokens : 0;
}

// Returns a lower limit of the mean k3: five standard errors below it, by the scatter of steps or
// of tokens, whichever is larger; 0 if the steps are too few.
double LeastOf(std::span<const DriftPoint> points, double mean) {
  if (points.size() < kFewestToBound) return 0;
  const auto n = static_cast<double>(points.size());
  double tokens = 0, squares = 0;
  for (const DriftPoint& p : points) tokens += p.tokens;
  for (const DriftPoint& p : points) {
    const double weight = p.tokens / tokens * n;
    squares += weight * weight * (p.k3 - mean) * (p.k3 - mean);
  }
  const double by_step = kStretchErrors * StudentFactor(n) * std::sqrt(squares / (n - 1) / n);
  const double by_token = kStretchErrors * std::sqrt(mean / tokens);
  return std::max(0.0, mean - std::max(by_step, by_token));
}

DriftStretch StretchOf(std::span<const DriftPoint> points) {
  const double mean = PooledK3(points);
  return {points.front().step, points.back().step, mean, LeastOf(points, mean)};
}

// Returns stretches of equal length, the newest last. The first one takes the steps that remain.
std::vector<DriftStretch> CutStretches(std::span<const DriftPoint> points) {
  const size_t n = points.size();
  const size_t fewest = n >= 3 * kFewestToBound ? kFewestToBound : kFewestOfStretch;
  const size_t length = std::max(fewest, (n + kMostStretches - 1) / kMostStretches);
  std::vector<DriftStretch> stretches;
  for (size_t begin = n % length, end = begin + length; end <= n; begin = end, end += length) {
    const size_t from = stretches.empty() ? 0 : begin;
    stretches.push_back(StretchOf(points.subspan(from, end - from)));
  }
  return stretches;
}

// Sets `ended` and `end_step`: the newest healthy steps are more than any healthy stretch between
// bad steps before, and at least kFewestToBound. A step is bad above the geometric mean of the
// worst and the newest k3.
void FindDriftEnd(std::span<const DriftPoint> points, DriftCourse& course) {
  constexpr double kLeast = 1e-6;
  const double now = std::max(course.newest.k3, kLeast);
  if (!(now <= kEndsBelow * course.worst.k3) || !(now <= kDriftHealthy)) return;
  const double bad = std::sqrt(now * course.worst.k3);
  size_t healthy = 0, longest = 0;  // lengths of healthy stretches after a bad step
  bool any = false;
  for (const DriftPoint& p : points) {
    if (!(p.k3 <= bad)) {
      longest = any ? std::max(longest, healthy) : 0;
      any = true;
      healthy = 0;
    } else {
      ++healthy;
    }
  }
  const auto tail = points.last(healthy);
  course.ended =
      any && healthy >= std::max(kFewestToBound, longest + 1) && PooledK3(tail) <= kDriftHealthy;
  if (course.ended) course.end_step = tail.front().step;
}

}  // namespace

DriftCourse FollowDrift(std::span<const DriftPoint> points) {
  DriftCourse course;
  if (points.size() < 2 * kFewestOfStretch) return course;
  const std::vector<DriftStretch> stretches = CutStretches(points);
  if (stretches.size() < 2) return course;
  course.judged = true;
  course.newest = stretches.back();
  course.worst = *std::max_element(stretches.begin(), stretches.end(),
                                   [](const auto& a, const auto& b) { return a.k3 < b.k3; });
  for (const DriftStretch& s : stretches)
    course.largest_least = std::max(course.largest_least, s.least);
  FindDriftEnd(points, course);
  return course;
}

std::string DriftCourse::Words() const {
  if (!judged) return "";
  const auto stretch = [](const DriftStretch& s) {
    return absl::StrFormat("steps %d to %d: k3 %.2g", s.first, s.last, s.k3);
  };
  std::string words =
      absl::StrCat(" Worst in ", stretch(worst), ". Newest in ", stretch(newest), ".");
  if (ended) absl::StrAppend(&words, " Ended at step ", end_step, ".");
  return words;
}

void DriftCourse::Describe(google::protobuf::Struct& details) const {
  if (!judged) return;
  const auto put = [&](const char* key, const DriftStretch& s) {
    google::protobuf::Struct& look = PutStruct(details, key);
    Put(look, "step_first", static_cast<double>(s.first));
    Put(look, "step_last", static_cast<double>(s.last));
    Put(look, "k3", s.k3);
  };
  put("worst_look", worst);
  put("newest_look", newest);
  if (ended) Put(details, "end_step", static_cast<double>(end_step));
}

void VersionCourse::Add(int64_t step, int64_t version, int64_t train_version) {
  const auto [at, fresh] = steps_.try_emplace(step, Versions{version, train_version});
  if (fresh) return;
  at->second.engine = std::max(at->second.engine, version);
  at->second.trainer = std::max(at->second.trainer, train_version);
}

VersionCourse::Stand VersionCourse::Find() const {
  constexpr int64_t kFewestMissed = 8, kFewestChanges = 8, kTimesOthers = 4;
  Stand longest;
  int64_t changes = -1;  // the first stretch is no change
  const auto take = [&](int64_t first, int64_t last, const Versions& v, int64_t missed) {
    ++changes;
    longest.ended = true;
    // A trainer may count steps before it updates the policy: a critic's warm-up.
    if (changes == 0) return;
    if (missed <= longest.missed) {
      longest.longest_other = std::max(longest.longest_other, missed);
      return;
    }
    const int64_t other = std::max(longest.longest_other, longest.missed);
    longest = {};
    longest.first = first;
    longest.last = last;
    longest.version = v.engine;
    longest.missed = missed;
    longest.longest_other = other;
  };
  auto begin = steps_.begin();
  for (auto it = steps_.begin(); it != steps_.end();) {
    const auto last = it;
    if (++it != steps_.end() && it->second.engine <= begin->second.engine) continue;
    take(begin->first, last->first, begin->second, last->second.trainer - begin->second.trainer);
    begin = it;
  }
  longest.found = longest.missed >= kFewestMissed && changes >= kFewestChanges &&
                  longest.missed >= kTimesOthers * std::max<int64_t>(longest.longest_other, 1);
  return longest;
}

}  // namespace plumbline::analysis
