#include "calculators/ledger/checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/statistics/statistics.h"
#include "calculators/ledger/square.h"

namespace plumbline::ledger {
namespace {

// A prior worth four more pairs: two evaluation sets differ by 0.2 % from seed to seed.
constexpr double kAssumedDifference = 0.002;
constexpr double kAssumedPairs = 4;
constexpr double kFalseAlarm = 0.01;  // per ledger
// From this number of multipliers on, their differences show how far evaluation sets differ without
// a leak.
constexpr size_t kEnough = 6;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Differences of the gains on both sets, for one multiplier.
struct Differences {
  std::vector<double> values;
  double squares = 0;  // about the cells' means
  double freedom = 0;
};

Differences DifferencesOf(const std::vector<Run>& runs, const std::vector<Cell>& cells) {
  Differences out;
  for (const Cell& cell : cells) {
    std::vector<double> here;
    for (const auto& [w, wo] : cell.pairs) {
      const Run &with = runs[w], &without = runs[wo];
      if (!with.other || !without.other) continue;
      here.push_back(std::log(without.loss / with.loss) - std::log(*without.other / *with.other));
    }
    if (here.empty()) continue;
    double mean = 0;
    for (const double x : here) mean += x / static_cast<double>(here.size());
    for (const double x : here) out.squares += Square(x - mean);
    out.freedom += static_cast<double>(here.size()) - 1;
    out.values.insert(out.values.end(), here.begin(), here.end());
  }
  return out;
}

// Returns true if a run without the change is in pairs of two judged multipliers.
bool BaselinesShared(const Estimate& estimate, const std::vector<Leak>& leaks) {
  std::set<size_t> seen;
  for (size_t i = 0; i < leaks.size(); ++i) {
    if (leaks[i].pairs == 0) continue;
    std::set<size_t> mine;
    for (const Cell& cell : estimate.multipliers[i].cells) {
      for (const auto& [with, without] : cell.pairs) mine.insert(without);
    }
    for (const size_t run : mine) {
      if (!seen.insert(run).second) return true;
    }
  }
  return false;
}

// Returns the variance of a pair from the distances of the multipliers' means.
double Between(const Estimate& estimate, const std::vector<Leak>& leaks) {
  std::vector<double> means, pairs, off;
  for (const Leak& leak : leaks) {
    if (leak.pairs == 0) continue;
    means.push_back(leak.mean);
    pairs.push_back(static_cast<double>(leak.pairs));
  }
  const double middle = Median(means);
  for (const double mean : means) off.push_back(std::fabs(mean - middle));
  const double variance = Square(1.4826 * Median(off)) * Median(pairs);
  return BaselinesShared(estimate, leaks) ? 2 * variance : variance;
}

}  // namespace

Leaks FindLeaks(const Ledger& ledger, const Estimate& estimate, const Allowances& allowances) {
  Leaks out;
  double squares = kAssumedPairs * Square(kAssumedDifference);
  out.freedom = kAssumedPairs;
  for (const MultiplierEstimate& m : estimate.multipliers) {
    const Differences differences = DifferencesOf(ledger.runs, m.cells);
    Leak& leak = out.of.emplace_back();
    leak.pairs = differences.values.size();
    if (leak.pairs == 0) continue;
    ++out.judged;
    for (const double x : differences.values) leak.mean += x / static_cast<double>(leak.pairs);
    squares += differences.squares;
    out.freedom += differences.freedom;
  }
  if (out.judged == 0) return out;
  if (out.judged >= kEnough) {
    const double b = 0.4 * (static_cast<double>(out.judged) - 1);
    squares += b * Between(estimate, out.of);
    out.freedom += b;
  }
  const double variance = squares / out.freedom;
  out.threshold = StudentQuantile(1 - kFalseAlarm / static_cast<double>(out.judged), out.freedom);
  for (Leak& leak : out.of) {
    if (leak.pairs == 0) continue;
    const double sd =
        std::sqrt(variance / static_cast<double>(leak.pairs) + Square(allowances.large));
    leak.z = leak.mean / sd;
    leak.found = leak.mean > kLeastLeak && leak.z >= out.threshold;
  }
  return out;
}

bool ScaleBias::found() const { return judged > 0 && std::fabs(z()) >= kScaleBias; }

// Computes the mean of differences that share runs and allowances: a sum over runs, over scales and
// over multipliers.
ScaleBias FindScaleBias(const Estimate& estimate, const Allowances& allowances) {
  ScaleBias out;
  for (const MultiplierEstimate& m : estimate.multipliers) out.judged += m.cells.size() > 1 ? 1 : 0;
  if (out.judged == 0) return out;
  const double share = 1 / static_cast<double>(out.judged);
  std::map<size_t, double> runs;
  std::map<double, double> small;  // by scale
  double large = 0, own = 0;
  const auto add = [&](const Cell& cell, double gain) {
    for (const size_t r : cell.with)
      runs[r] -= share * gain / static_cast<double>(cell.with.size());
    for (const size_t r : cell.without)
      runs[r] += share * gain / static_cast<double>(cell.without.size());
  };
  for (const MultiplierEstimate& m : estimate.multipliers) {
    if (m.cells.size() < 2) continue;
    const ScaleWorth &first = m.worth.scales.front(), &last = m.worth.largest();
    out.mean += share * (last.worth - first.worth);
    add(m.cells.back(), last.gain);
    add(m.cells.front(), -first.gain);
    small[first.flops] += share * first.gain;
    large += share * last.gain;
    own += Square(share * allowances.scale * first.decades);
  }
  double variance = own + Square(allowances.large * large);
  for (const auto& [flops, gain] : small) variance += Square(allowances.small * gain);
  double coefficients = 0;
  for (const auto& [run, coefficient] : runs) coefficients += Square(coefficient);
  out.sd = std::sqrt(variance + Square(estimate.noise) * coefficients);
  return out;
}

}  // namespace plumbline::ledger
