#include "analysis/routing/policies/own_refusals.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace plumbline::analysis {
namespace {

constexpr int64_t kMostChoices = 1 << 17;
constexpr size_t kLevels = 4;  // how full an expert is, in quarters

// Numbers of kept and refused choices until an expert's last admission.
struct Fates {
  double kept = 0, refused = 0;
  // Returns log2 of their likelihood at the most likely rate.
  double Likelihood() const {
    if (kept == 0 || refused == 0) return 0;
    const double rate = refused / (kept + refused);
    return kept * std::log2(1 - rate) + refused * std::log2(rate);
  }
};

// Refusals after the last admission are due to the capacity.
struct CellFates {
  std::array<Fates, kLevels> of, since;  // until the last admission, and after it
  double tail = 0;

  void Add(bool kept, double capacity) {
    const Fates held = All();
    const double full = held.kept / std::max(capacity, 1.0);
    const auto level = std::min(kLevels - 1, static_cast<size_t>(full * kLevels));
    if (!kept) {
      ++since[level].refused;
      ++tail;
      return;
    }
    for (size_t i = 0; i < kLevels; ++i) of[i].refused += since[i].refused;
    since = {};
    tail = 0;
    ++of[level].kept;
  }
  Fates All() const {
    Fates all;
    for (const Fates& level : of) {
      all.kept += level.kept;
      all.refused += level.refused;
    }
    return all;
  }
};

double BitsAlong(const RoutingCase& c, const Saturation& s, const std::vector<uint8_t>& looked,
                 const TimeQueue& queue) {
  std::vector<CellFates> cells(s.cells.size());
  for (size_t place = 0; place < queue.order.size(); ++place) {
    const QueuedRow row = queue.At(c, place);
    if (!row.judged) continue;
    for (const Choice& choice : row.choices) {
      const size_t cell = CellOfToken(c, choice.token, choice.expert);
      if (looked[cell]) cells[cell].Add(choice.kept, static_cast<double>(s.cells[cell].kept));
    }
  }
  double draw = 0, one_rate = 0;
  std::array<Fates, kLevels> levels;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!looked[i]) continue;
    const Fates all = cells[i].All();
    draw -= Log2Choose(all.kept + all.refused + cells[i].tail, all.kept);
    one_rate += all.Likelihood();
    for (size_t level = 0; level < kLevels; ++level) {
      levels[level].kept += cells[i].of[level].kept;
      levels[level].refused += cells[i].of[level].refused;
    }
  }
  double by_level = 0;
  for (const Fates& level : levels) by_level += level.Likelihood();
  return draw - std::max(one_rate, by_level);
}

}  // namespace

double OwnRefusalBits(const RoutingCase& c, const Saturation& s,
                      const std::vector<TimeQueue>& queues) {
  std::vector<uint8_t> looked = FreshCells(c, s);
  int64_t choices = 0;
  for (size_t i = 0; i < looked.size(); ++i) {
    looked[i] = looked[i] && choices < kMostChoices;
    choices += looked[i] ? s.cells[i].candidates() : 0;
  }
  double least = HUGE_VAL;
  for (const TimeQueue& queue : queues) least = std::min(least, BitsAlong(c, s, looked, queue));
  return std::isfinite(least) ? least : 0;
}

}  // namespace plumbline::analysis
