#include "analysis/routing/policies/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace plumbline::analysis {
namespace {

constexpr int64_t kFewestRepeats = 8;

// Fate of the tokens that chose one expert at one position.
struct Entry {
  bool kept = false;
  double requested = 0;
};
using Entries = std::map<std::pair<int64_t, int32_t>, Entry>;  // by position, expert

// Returns an empty map if position and expert do not decide the fates, or if nothing shows that
// they do.
Entries ReadTable(const RoutingCase& c) {
  Entries entries;
  int64_t repeats = 0;
  for (const Choice& choice : c.choices) {
    if (!c.judged(choice.token)) continue;
    const int64_t position = c.position[static_cast<size_t>(choice.token)];
    const auto [at, fresh] = entries.try_emplace({position, choice.expert}, Entry{choice.kept, 0});
    if (at->second.kept != choice.kept) return {};
    ++at->second.requested;
    repeats += fresh ? 0 : 1;
  }
  return repeats >= kFewestRepeats ? entries : Entries{};
}

// Variances of the numbers of a cell's candidates that a table admits and that it refuses.
struct Spread {
  double kept = 0;
  double refused = 0;
  // Returns the variance of the admitted number, given the number of candidates.
  double of_kept() const { return kept > 0 && refused > 0 ? kept * refused / (kept + refused) : 0; }
};

std::vector<Spread> SpreadOfCells(const RoutingCase& c, const Saturation& s,
                                  const Entries& entries) {
  std::map<int64_t, std::map<int32_t, double>> rows;  // judged, by position and pool
  std::map<int64_t, double> all;                      // by position
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    ++rows[c.position[row]][c.pool[row]];
    ++all[c.position[row]];
  }
  std::vector<Spread> spread(s.cells.size());
  for (const auto& [at, entry] : entries) {
    const double n = all[at.first];
    if (n < 2) continue;
    // Unbiased estimate of the variance p(1-p) of one row's choice, from n rows.
    const double of_row = entry.requested * (n - entry.requested) / (n * (n - 1));
    for (const auto& [pool, count] : rows[at.first]) {
      Spread& cell = spread[static_cast<size_t>(pool) * static_cast<size_t>(c.experts) +
                            static_cast<size_t>(at.second)];
      (entry.kept ? cell.kept : cell.refused) += count * of_row;
    }
  }
  return spread;
}

// Returns, per cell, the number of refusals after its last admission.
std::vector<double> LastRefusals(const RoutingCase& c, const Saturation& s,
                                 const TimeQueue& queue) {
  std::vector<double> last(s.cells.size(), 0);
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const QueuedRow row = queue.At(c, place);
    for (const Choice& choice : row.choices) {
      double& count = last[CellOfToken(c, choice.token, choice.expert)];
      count = choice.kept ? 0 : count + (row.judged ? 1 : 0);
    }
  }
  return last;
}

// Returns -log2 of the probability of one value, or of up to `more` values above it, for a normal
// count.
double ValueBits(double variance, double more) {
  const double density = 2 * std::numbers::pi * variance;
  return density > 1 ? std::max(0.5 * std::log2(density) - std::log2(more + 1), 0.0) : 0;
}

// Uses the queue that favours the table.
double CountBits(const RoutingCase& c, const Saturation& s, const Entries& entries,
                 const std::vector<TimeQueue>& queues) {
  const std::vector<Spread> spread = SpreadOfCells(c, s, entries);
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  double least = HUGE_VAL;
  for (const TimeQueue& queue : queues) {
    const std::vector<double> last = LastRefusals(c, s, queue);
    double bits = 0;
    for (size_t i = 0; i < spread.size(); ++i) {
      if (fresh[i]) bits += ValueBits(spread[i].of_kept(), last[i]);
    }
    least = std::min(least, bits);
  }
  return std::isfinite(least) ? least : 0;
}

}  // namespace

PositionTable FindTable(const RoutingCase& c, const Saturation& s,
                        const std::vector<TimeQueue>& queues) {
  const Entries entries = ReadTable(c);
  if (entries.empty()) return {};
  return {true, CountBits(c, s, entries, queues)};
}

}  // namespace plumbline::analysis
