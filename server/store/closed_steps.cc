#include "server/store/closed_steps.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

namespace plumbline::server {
namespace {

// Series handled at a time: their values fit into the second-level cache.
constexpr size_t kChunk = 32;

// The places of the chunk's series in one list of columns.
struct Slots {
  std::vector<std::pair<uint32_t, uint32_t>> at;  // (column, slot)
};

// A row of a part, in the current block of ranks.
struct Row {
  uint32_t step;  // index in the block
  const StepPart* part;
  uint32_t row;
};

class Builder {
 public:
  Builder(const std::vector<ClosedStepPtr>& steps, size_t fresh_from)
      : steps_(steps),
        fresh_from_(fresh_from),
        // A cache line more than a power of two; otherwise all series would use the same cache
        // sets.
        stride_(steps.size() * kTileRanks + 8),
        values_(kChunk * stride_),
        present_(kChunk * steps.size()) {
    for (uint32_t s = 0; s < steps.size(); ++s) {
      for (const StepPart& part : steps[s]->parts) {
        slots_.try_emplace(part.columns.get());
        for (uint32_t r = 0; r < part.ranks.size(); ++r)
          rows_[part.ranks[r] / kTileRanks].push_back({s, &part, r});
      }
    }
    for (const auto& [columns, slots] : slots_)
      series_.insert(series_.end(), columns->series.begin(), columns->series.end());
    std::sort(series_.begin(), series_.end());
    series_.erase(std::unique(series_.begin(), series_.end()), series_.end());
  }

  absl::Status Run(const std::function<absl::Status(const BuiltTile&)>& take) {
    for (const auto& [block, rows] : rows_) {
      for (size_t first = 0; first < series_.size(); first += kChunk) {
        const size_t count = std::min(kChunk, series_.size() - first);
        FindSlots(first, count);
        Gather(rows);
        for (size_t slot = 0; slot < count; ++slot) {
          BuiltTile built;
          built.series = series_[first + slot];
          built.rank_block = block;
          if (!Fill(slot, &built)) continue;
          built.tile = &tile_;
          if (absl::Status s = take(built); !s.ok()) return s;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  void FindSlots(size_t first, size_t count) {
    std::unordered_map<uint32_t, uint32_t> slot_of;
    for (uint32_t i = 0; i < count; ++i) slot_of[series_[first + i]] = i;
    for (auto& [columns, slots] : slots_) {
      slots.at.clear();
      for (uint32_t c = 0; c < columns->series.size(); ++c) {
        const auto found = slot_of.find(columns->series[c]);
        if (found != slot_of.end()) slots.at.emplace_back(c, found->second);
      }
    }
  }

  void Gather(const std::vector<Row>& rows) {
    std::fill(present_.begin(), present_.end(), 0);
    const StepPart* part = nullptr;
    const Slots* slots = nullptr;
    for (const Row& row : rows) {
      if (row.part != part) {
        part = row.part;
        slots = &slots_.at(part->columns.get());
      }
      const size_t lane = part->ranks[row.row] % kTileRanks;
      const size_t base = row.row * part->columns->series.size();
      const size_t cell = row.step * kTileRanks + lane;
      for (const auto& [column, slot] : slots->at) {
        if (part->Absent(base + column)) continue;
        values_[slot * stride_ + cell] = part->values[base + column];
        present_[slot * steps_.size() + row.step] |= uint64_t{1} << lane;
      }
    }
  }

  // Fills in the tile of a slot, without steps and ranks that have no value. Returns false if it
  // has no value at all.
  bool Fill(size_t slot, BuiltTile* built) {
    const uint64_t* present = &present_[slot * steps_.size()];
    tile_.steps.clear();
    tile_.values.clear();
    tile_.absent.clear();
    tile_.ranks = 0;
    bool all = true;
    for (size_t s = 0; s < steps_.size(); ++s) tile_.ranks |= present[s];
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (present[s] == 0) continue;
      all &= present[s] == tile_.ranks;
      tile_.steps.push_back(steps_[s]->step);
      if (s < fresh_from_) continue;
      if (built->fresh_samples == 0) built->fresh_first = steps_[s]->step;
      built->fresh_last = steps_[s]->step;
      built->fresh_ranks |= present[s];
      built->fresh_samples += static_cast<uint64_t>(std::popcount(present[s]));
    }
    if (tile_.ranks == 0) return false;
    const size_t cells = tile_.steps.size() * tile_.columns();
    if (!all) tile_.absent.assign((cells + 63) / 64, 0);
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (present[s] != 0) AppendStep(present[s], &values_[slot * stride_ + s * kTileRanks]);
    }
    return true;
  }

  void AppendStep(uint64_t present, const double* lanes) {
    if (tile_.ranks == ~uint64_t{0} && present == tile_.ranks) {
      tile_.values.insert(tile_.values.end(), lanes, lanes + kTileRanks);
      return;
    }
    for (uint64_t left = tile_.ranks; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const bool here = ((present >> lane) & 1) != 0;
      const size_t cell = tile_.values.size();
      if (!here) tile_.absent[cell / 64] |= uint64_t{1} << (cell % 64);
      tile_.values.push_back(here ? lanes[lane] : 0.0);
    }
  }

  const std::vector<ClosedStepPtr>& steps_;
  const size_t fresh_from_;
  const size_t stride_;
  std::vector<double> values_;                 // [slots, steps, lanes], padded
  std::vector<uint64_t> present_;              // [slots, steps]: one bit per lane
  std::map<uint32_t, std::vector<Row>> rows_;  // by rank block
  std::unordered_map<const StoredColumns*, Slots> slots_;
  std::vector<uint32_t> series_;
  Tile tile_;
};

}  // namespace

void AddPart(const rules::StepSeries& series, std::shared_ptr<const StoredColumns> columns,
             ClosedStep* step) {
  StepPart part;
  const size_t width = columns->series.size();
  const size_t cells = series.rows.size() * width;
  part.columns = std::move(columns);
  part.ranks.reserve(series.rows.size());
  part.values.reserve(cells);
  uint64_t samples = cells;
  for (const rules::SeriesRow& row : series.rows) {
    const size_t first = part.values.size();
    part.ranks.push_back(row.rank);
    part.values.insert(part.values.end(), row.values, row.values + width);
    for (size_t c = 0; row.absent != nullptr && c < width; ++c) {
      if (row.present(c)) continue;
      if (part.absent.empty()) part.absent.assign((cells + 63) / 64, 0);
      part.absent[(first + c) / 64] |= uint64_t{1} << ((first + c) % 64);
      --samples;
    }
  }
  step->samples += samples;
  step->bytes += sizeof(StepPart) + cells * sizeof(double) + part.ranks.size() * sizeof(uint32_t) +
                 part.absent.size() * sizeof(uint64_t);
  step->parts.push_back(std::move(part));
}

absl::Status BuildTiles(const std::vector<ClosedStepPtr>& steps, size_t fresh_from,
                        const std::function<absl::Status(const BuiltTile&)>& take) {
  if (steps.empty()) return absl::OkStatus();
  return Builder(steps, fresh_from).Run(take);
}

}  // namespace plumbline::server
