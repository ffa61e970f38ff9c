#include "server/store/closed_steps.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

namespace plumbline::server {
namespace {

// Series handled at a time: their values fit into the second-level cache.
constexpr size_t kChunk = 32;

// A list of columns, and the places of its series: (index in series_, column), ascending.
struct List {
  const StoredColumns* columns;
  std::vector<std::pair<uint32_t, uint32_t>> at;
};

// The places of one list that belong to a chunk.
struct Slice {
  uint32_t list, begin, end;
};

// A row of a part, in the current block of ranks.
struct Row {
  uint32_t order;  // of the block's rows
  uint32_t step;   // index in the block
  const StepPart* part;
  uint32_t row;
};

// The time is linear in the number of values, for any number of lists of columns: a chunk uses only
// the lists that have one of its series, and only their rows.
class Builder {
 public:
  Builder(const std::vector<ClosedStepPtr>& steps, size_t fresh_from)
      : steps_(steps),
        fresh_from_(fresh_from),
        // One cache line more than a power of two, because otherwise all series would use the same
        // cache sets.
        stride_(steps.size() * kTileRanks + 8),
        values_(kChunk * stride_),
        present_(kChunk * steps.size()) {
    std::unordered_map<const StoredColumns*, uint32_t> list_of;
    uint32_t order = 0;
    for (uint32_t s = 0; s < steps.size(); ++s) {
      for (const StepPart& part : steps[s]->parts) {
        const auto [list, fresh] =
            list_of.try_emplace(part.columns.get(), static_cast<uint32_t>(lists_.size()));
        if (fresh) lists_.push_back({part.columns.get(), {}});
        for (uint32_t r = 0; r < part.ranks.size(); ++r)
          rows_[part.ranks[r] / kTileRanks][list->second].push_back({order++, s, &part, r});
      }
    }
    FindSeries();
    CutIntoChunks();
  }

  absl::Status Run(const std::function<absl::Status(const BuiltTile&)>& take) {
    for (const auto& [block, rows] : rows_) {
      for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        const size_t first = chunk * kChunk;
        Gather(rows, chunks_[chunk], first);
        for (size_t slot = 0; slot < std::min(kChunk, series_.size() - first); ++slot) {
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
  using RowsOfList = std::unordered_map<uint32_t, std::vector<Row>>;

  void FindSeries() {
    for (const List& list : lists_)
      series_.insert(series_.end(), list.columns->series.begin(), list.columns->series.end());
    std::sort(series_.begin(), series_.end());
    series_.erase(std::unique(series_.begin(), series_.end()), series_.end());
  }

  void CutIntoChunks() {
    chunks_.resize((series_.size() + kChunk - 1) / kChunk);
    for (uint32_t l = 0; l < lists_.size(); ++l) {
      auto& at = lists_[l].at;
      const std::vector<uint32_t>& series = lists_[l].columns->series;
      for (uint32_t c = 0; c < series.size(); ++c) {
        const auto found = std::lower_bound(series_.begin(), series_.end(), series[c]);
        at.emplace_back(static_cast<uint32_t>(found - series_.begin()), c);
      }
      std::sort(at.begin(), at.end());
      for (uint32_t begin = 0, end = 0; begin < at.size(); begin = end) {
        const size_t chunk = at[begin].first / kChunk;
        while (end < at.size() && at[end].first / kChunk == chunk) ++end;
        chunks_[chunk].push_back({l, begin, end});
      }
    }
  }

  void Gather(const RowsOfList& rows, const std::vector<Slice>& slices, size_t first) {
    std::fill(present_.begin(), present_.end(), 0);
    gathered_.clear();
    for (const Slice& slice : slices) {
      const auto found = rows.find(slice.list);
      if (found == rows.end()) continue;
      for (const Row& row : found->second) gathered_.emplace_back(&row, &slice);
    }
    // If several lists have a series, the later row counts.
    if (slices.size() > 1) {
      std::sort(gathered_.begin(), gathered_.end(),
                [](const auto& a, const auto& b) { return a.first->order < b.first->order; });
    }
    for (const auto& [row, slice] : gathered_) GatherRow(*row, *slice, first);
  }

  void GatherRow(const Row& row, const Slice& slice, size_t first) {
    const StepPart& part = *row.part;
    const size_t lane = part.ranks[row.row] % kTileRanks;
    const size_t base = row.row * part.columns->series.size();
    const size_t cell = row.step * kTileRanks + lane;
    const auto& at = lists_[slice.list].at;
    for (uint32_t i = slice.begin; i < slice.end; ++i) {
      const size_t column = at[i].second, slot = at[i].first - first;
      if (part.Absent(base + column)) continue;
      values_[slot * stride_ + cell] = part.values[base + column];
      present_[slot * steps_.size() + row.step] |= uint64_t{1} << lane;
    }
  }

  // Fills in the tile of a slot, without steps and ranks that have no value. Returns false if it
  // has no value.
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
  std::vector<double> values_;           // [slots, steps, lanes], padded
  std::vector<uint64_t> present_;        // [slots, steps]: one bit per lane
  std::map<uint32_t, RowsOfList> rows_;  // by rank block
  std::vector<List> lists_;
  std::vector<uint32_t> series_;
  std::vector<std::vector<Slice>> chunks_;
  std::vector<std::pair<const Row*, const Slice*>> gathered_;
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
