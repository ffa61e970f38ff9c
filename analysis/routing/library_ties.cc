#include "analysis/routing/library_ties.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {
namespace {

struct MaskEntry {
  uint8_t value;
  int32_t token;
};

// Moves the `most` entries that torch.topk selects to the front.
void SelectTop(std::vector<MaskEntry>& mask, int64_t most) {
  const auto higher = [](const MaskEntry& a, const MaskEntry& b) { return a.value > b.value; };
  if (most * 64 <= static_cast<int64_t>(mask.size())) {
    std::partial_sort(mask.begin(), mask.begin() + most, mask.end(), higher);
  } else {
    std::nth_element(mask.begin(), mask.begin() + (most - 1), mask.end(), higher);
  }
}

class MaskReplay {
 public:
  MaskReplay(const RoutingCase& c, const Saturation& s)
      : c_(c), s_(s), fate_(static_cast<size_t>(c.tokens)) {
    std::vector<uint8_t> refusing(s.cells.size());
    for (size_t i = 0; i < s.cells.size(); ++i) refusing[i] = s.cells[i].refused > 0;
    cells_ = GroupByCell(c, refusing);
  }

  // Returns true if the selection over this queue gives every refusal.
  bool Fits(const std::vector<int32_t>& order) {
    if (cells_.size() == 0 || !FirstFits(order)) return false;
    std::vector<std::vector<int32_t>> rows(static_cast<size_t>(c_.pools));
    for (const int32_t t : order)
      rows[static_cast<size_t>(c_.pool[static_cast<size_t>(t)])].push_back(t);
    for (size_t i = 1; i < cells_.size(); ++i) {
      const Cell& cell = s_.cells[cells_.cell[i]];
      if (cell.kept < 1 || !CellFits(i, cell.kept, rows[static_cast<size_t>(cell.pool)]))
        return false;
    }
    return true;
  }

  LibraryTies Result() const {
    LibraryTies out;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const Cell& cell = s_.cells[cells_.cell[i]];
      out.bits +=
          Log2Choose(static_cast<double>(cell.candidates()), static_cast<double>(cell.kept));
      ++out.cells;
    }
    return out;
  }

 private:
  // The first cell refutes almost every queue, so only its pool's rows are collected for it.
  bool FirstFits(const std::vector<int32_t>& order) {
    const Cell& cell = s_.cells[cells_.cell[0]];
    std::vector<int32_t> rows;
    for (const int32_t t : order) {
      if (c_.pool[static_cast<size_t>(t)] == cell.pool) rows.push_back(t);
    }
    return cell.kept >= 1 && CellFits(0, cell.kept, rows);
  }

  bool CellFits(size_t i, int64_t kept, const std::vector<int32_t>& rows) {
    constexpr uint8_t kRefused = 1, kKept = 2;
    const auto set = [&](bool clear) {
      for (const int32_t n : cells_.ChoicesOf(i)) {
        const Choice& choice = c_.choices[static_cast<size_t>(n)];
        fate_[static_cast<size_t>(choice.token)] = clear ? 0 : choice.kept ? kKept : kRefused;
      }
    };
    set(false);
    mask_.clear();
    int64_t seen = 0;
    for (const int32_t t : rows) {
      const uint8_t fate = fate_[static_cast<size_t>(t)];
      seen += fate == kKept;
      mask_.push_back({static_cast<uint8_t>(fate != 0), t});
    }
    bool fits = seen == kept;  // otherwise padding holds places
    if (fits) SelectTop(mask_, kept);
    for (int64_t n = 0; n < kept && fits; ++n)
      fits = fate_[static_cast<size_t>(mask_[static_cast<size_t>(n)].token)] == kKept;
    set(true);
    return fits;
  }

  const RoutingCase& c_;
  const Saturation& s_;
  CellChoices cells_;
  std::vector<uint8_t> fate_;  // of the cell's candidates
  std::vector<MaskEntry> mask_;
};

}  // namespace

LibraryTies ReplayTopOfMask(const RoutingCase& c, const Saturation& s,
                            const std::vector<TimeQueue>& queues) {
  MaskReplay replay(c, s);
  const bool fits = std::any_of(queues.begin(), queues.end(),
                                [&](const TimeQueue& queue) { return replay.Fits(queue.order); });
  if (!fits) return {};
  LibraryTies out = replay.Result();
  out.bits -= std::log2(static_cast<double>(queues.size()));
  return out;
}

}  // namespace plumbline::analysis
