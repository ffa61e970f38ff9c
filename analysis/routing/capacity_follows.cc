#include "analysis/routing/capacity_follows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/call.h"

namespace plumbline::analysis {
namespace {

double Log2Factorial(double n) {
  int sign;
  return lgamma_r(n + 1, &sign) / std::numbers::ln2;
}

// Returns true if one number is a rising function of the other.
bool RiseTogether(const std::vector<CapacityCall>& calls, const std::vector<double>& with) {
  std::vector<std::pair<double, int64_t>> pairs;
  for (size_t i = 0; i < calls.size(); ++i) pairs.emplace_back(with[i], calls[i].capacity);
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 1; i < pairs.size(); ++i) {
    const bool same = pairs[i].first == pairs[i - 1].first;
    if (pairs[i].second < pairs[i - 1].second || (same && pairs[i].second != pairs[i - 1].second))
      return false;
  }
  return true;
}

// Returns the largest of all capacities that each call could have shown.
std::vector<int64_t> LargestShown(const std::vector<CapacityCall>& calls,
                                  const std::set<int64_t>& distinct) {
  std::vector<int64_t> out;
  for (const CapacityCall& call : calls) {
    auto most = distinct.rbegin();
    while (*most > call.capacity && !ShowsCapacity(call.offered, *most)) ++most;
    out.push_back(*most);
  }
  return out;
}

// Returns log2 of the number of different orders of the capacities in which every call could have
// shown its own.
double OrderBits(const std::vector<CapacityCall>& calls, std::vector<int64_t> largest) {
  std::vector<int64_t> capacities;
  std::map<int64_t, double> counts;
  for (const CapacityCall& call : calls) {
    capacities.push_back(call.capacity);
    ++counts[call.capacity];
  }
  std::sort(capacities.begin(), capacities.end());
  std::sort(largest.begin(), largest.end());
  double bits = 0;
  for (size_t i = 0; i < largest.size(); ++i) {
    const auto below = std::upper_bound(capacities.begin(), capacities.end(), largest[i]);
    const auto free = below - capacities.begin() - static_cast<std::ptrdiff_t>(i);
    bits += std::log2(std::max(1.0, static_cast<double>(free)));
  }
  for (const auto& [capacity, count] : counts) bits -= Log2Factorial(count);
  return bits;
}

// Returns log2 of the number of ways in which as many of the neighbours rise.
double NeighbourBits(const std::vector<CapacityCall>& calls, const std::vector<int64_t>& largest) {
  double pairs = 0, rising = 0;
  for (size_t i = 0; i + 1 < calls.size(); i += 2) {
    const int64_t first = calls[i].capacity, second = calls[i + 1].capacity;
    if (first == second || second > largest[i] || first > largest[i + 1]) continue;
    ++pairs;
    rising += second > first;
  }
  return Log2Choose(pairs, rising);
}

// Returns the place of each capacity among all, with mean 0.
std::vector<double> CapacityPlaces(const std::vector<CapacityCall>& calls) {
  std::vector<double> out;
  for (const CapacityCall& call : calls) {
    double rank = 0;
    for (const CapacityCall& other : calls)
      rank += (call.capacity > other.capacity) - (call.capacity < other.capacity);
    out.push_back(rank);
  }
  return out;
}

// Returns the correlation of ranks with those `lag` calls later.
double Autocorrelation(const std::vector<double>& ranks, size_t lag) {
  const size_t n = ranks.size() - lag;
  double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < n; ++i) {
    const double a = ranks[i], b = ranks[i + lag];
    x += a, y += b, xx += a * a, yy += b * b, xy += a * b;
  }
  const auto count = static_cast<double>(n);
  const double spread = std::sqrt((xx - x * x / count) * (yy - y * y / count));
  return spread > 0 ? (xy - x * y / count) / spread : 1;
}

// Returns true if the capacities come again after some number of calls: a schedule.
bool ComeAgain(const std::vector<double>& ranks) {
  constexpr double kAgain = 0.8;
  for (size_t lag = 1; 2 * lag <= ranks.size(); ++lag)
    if (!(Autocorrelation(ranks, lag) < kAgain)) return true;
  return false;
}

// Returns true if the capacities hardly rise or fall (Kendall's tau) nor move slowly.
bool WithoutTrend(const std::vector<CapacityCall>& calls, const std::vector<double>& ranks) {
  constexpr double kTrend = 0.25, kSlow = 0.32;
  const auto n = static_cast<double>(calls.size());
  double tau = 0;
  for (size_t i = 0; i < calls.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      tau += (calls[i].capacity > calls[j].capacity) - (calls[i].capacity < calls[j].capacity);
  return std::abs(tau) <= kTrend * n * (n - 1) / 2 && Autocorrelation(ranks, 1) <= kSlow;
}

// A function of the loads that the capacities rise with.
struct LoadFunction {
  double tried = HUGE_VAL;  // -log2 of its share: the shares of all functions sum to one
  std::string how;
  bool found() const { return tried < HUGE_VAL; }
};

// Returns the function with the largest share. The largest and the median load and the spread have
// a quarter each, all ranks share the rest.
LoadFunction RisingFunction(const std::vector<CapacityCall>& calls) {
  LoadFunction best;
  if (calls.empty()) return best;
  const size_t experts = calls[0].offered.size();
  const auto attempt = [&](double tried, const auto& number, const std::string& how) {
    if (!(tried < best.tried)) return;
    std::vector<double> with;
    for (const CapacityCall& call : calls) with.push_back(number(call.offered));
    if (RiseTogether(calls, with)) best = {tried, how};
  };
  const auto attempt_rank = [&](double tried, size_t rank) {
    attempt(
        tried,
        [&](const std::vector<int64_t>& offered) {
          return static_cast<double>(offered[experts - 1 - rank]);
        },
        absl::StrCat("the number of tokens that the expert of rank ", rank + 1, " was offered"));
  };
  attempt_rank(2, 0);
  attempt_rank(2, (experts - 1) / 2);
  attempt(
      2,
      [](const std::vector<int64_t>& offered) {
        double squares = 0;
        for (const int64_t n : offered) squares += static_cast<double>(n * n);
        return squares;
      },
      "the spread of the experts' loads");
  for (size_t rank = 0; rank < experts; ++rank)
    attempt_rank(2 + std::log2(static_cast<double>(experts)), rank);
  return best;
}

}  // namespace

bool ShowsCapacity(const std::vector<int64_t>& offered, int64_t capacity) {
  double bits = 0, best = 0;
  for (const int64_t candidates : offered) {
    if (candidates <= capacity) continue;
    const double one = HoldingBits({.kept = capacity, .refused = candidates - capacity});
    bits += one;
    best = std::max(best, one);
  }
  return bits - best >= kCapacityShownBits;
}

CapacityFollows FindCapacityFollows(const std::vector<CapacityCall>& calls) {
  CapacityFollows out;
  std::set<int64_t> distinct;
  for (const CapacityCall& call : calls) distinct.insert(call.capacity);
  const LoadFunction function = RisingFunction(calls);
  const std::vector<double> ranks = CapacityPlaces(calls);
  if (distinct.size() < 2 || !function.found() || ComeAgain(ranks)) return out;
  const std::vector<int64_t> largest = LargestShown(calls, distinct);
  double bits = NeighbourBits(calls, largest);
  if (WithoutTrend(calls, ranks)) bits = std::max(bits, OrderBits(calls, largest));
  bits = std::min(bits, Log2Factorial(static_cast<double>(distinct.size())));
  out.bits = std::max(0.0, bits - function.tried);
  out.how = function.how;
  return out;
}

}  // namespace plumbline::analysis
