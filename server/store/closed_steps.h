// The values of closed steps, in memory until they are sealed as tiles. A closed step never
// changes, so the judging thread, the writer and queries share it without a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rules/engine/series.h"
#include "server/store/tile.h"

namespace plumbline::server {

// A list of series and their ids in the store. Immutable.
struct StoredColumns {
  std::shared_ptr<const rules::SeriesColumns> names;
  std::vector<uint32_t> series;  // one per column
};

// Rows of one step over one list of series.
struct StepPart {
  std::shared_ptr<const StoredColumns> columns;
  std::vector<uint32_t> ranks;   // one per row; if a rank has several rows, the later value counts
  std::vector<double> values;    // [rows, columns], C order
  std::vector<uint64_t> absent;  // one bit per value; empty: all present

  bool Absent(size_t i) const { return !absent.empty() && ((absent[i / 64] >> (i % 64)) & 1) != 0; }
};

struct ClosedStep {
  int64_t step = 0;
  uint64_t entry = 0;  // of the journal: the entry that closed the step
  std::vector<StepPart> parts;
  uint64_t samples = 0;  // values that are present
  size_t bytes = 0;
};
using ClosedStepPtr = std::shared_ptr<const ClosedStep>;

// Adds a copy of the rows to the step.
void AddPart(const rules::StepSeries& series, std::shared_ptr<const StoredColumns> columns,
             ClosedStep* step);

// One tile of a block of steps, and its part that was not written before.
struct BuiltTile {
  uint32_t series = 0;
  uint32_t rank_block = 0;
  const Tile* tile = nullptr;  // valid during the callback
  uint64_t fresh_ranks = 0;    // ranks with a value in the fresh steps
  uint64_t fresh_samples = 0;
  int64_t fresh_first = 0, fresh_last = 0;  // undefined without fresh samples
};

// Builds the tiles of a block of steps (ascending, at most kMaxTileSteps), by rank block, then
// series. The steps from index `fresh_from` on are the fresh ones. Stops at the first error and
// returns it.
absl::Status BuildTiles(const std::vector<ClosedStepPtr>& steps, size_t fresh_from,
                        const std::function<absl::Status(const BuiltTile&)>& take);

}  // namespace plumbline::server
