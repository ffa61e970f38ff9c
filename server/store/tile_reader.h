// Reads tiles from the database.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"
#include "server/store/database.h"
#include "server/store/tile.h"

namespace plumbline::server {

// Not thread-safe: use one per connection.
class TileReader {
 public:
  static absl::StatusOr<std::unique_ptr<TileReader>> Create(const Database* database);

  // Reads the tiles of a series that may have steps of [first, last] and ranks of the blocks, in
  // order of steps, then blocks. Tiles that cannot be decoded are skipped; their numbers go to
  // *damaged.
  struct Range {
    uint32_t span = 0, series = 0;
    int64_t first = 0, last = 0;
    uint32_t first_block = 0, last_block = 0;
  };
  absl::Status Read(const Range& range,
                    const std::function<void(uint32_t rank_block, const Tile& tile)>& take,
                    std::vector<int64_t>* damaged);

  // The extent of a series of a span, by rank block.
  struct Extent {
    uint32_t series = 0, rank_block = 0;
    uint64_t ranks = 0, samples = 0;
    int64_t first_step = 0, last_step = 0;
  };
  absl::StatusOr<std::vector<Extent>> Extents(uint32_t span);                   // of all series
  absl::StatusOr<std::vector<Extent>> Extents(uint32_t span, uint32_t series);  // of one

  absl::StatusOr<std::vector<v1::Gap>> Gaps(const std::string& run);  // empty: of all runs
  absl::StatusOr<std::vector<v1::IncidentRevision>> History(const std::string& fingerprint);

 private:
  absl::StatusOr<std::vector<Extent>> ReadExtents(Statement* statement);

  Statement block_before_, tiles_, extents_, series_extents_, gaps_, history_;
  TileDecoder decoder_;
  Tile tile_;
};

}  // namespace plumbline::server
