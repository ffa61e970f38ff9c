// The cells of one series for a query: exact values, or minimum, mean and maximum over buckets of
// steps.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plumbline/v1/query.pb.h"
#include "server/store/closed_steps.h"
#include "server/store/tile.h"

namespace plumbline::server {

struct GridShape {
  int64_t first_step = 0, last_step = -1;
  uint64_t bucket_steps = 1;
  bool over_ranks = false;      // one row over all ranks
  std::vector<uint32_t> ranks;  // rows, ascending; with over_ranks, the ranks that count

  size_t buckets() const {
    return static_cast<size_t>(static_cast<uint64_t>(last_step - first_step) / bucket_steps + 1);
  }
  size_t rows() const { return over_ranks ? 1 : ranks.size(); }
};

// Not thread-safe.
class SeriesGrid {
 public:
  explicit SeriesGrid(GridShape shape);

  // Adds a tile, without values of steps outside [first, last] or of ranks that are not rows.
  void Add(const Tile& tile, uint32_t rank_block, int64_t first, int64_t last, uint32_t attempt);
  // Adds a step in memory: the parts that have the series, with its column, in order of arrival. If
  // a rank reports a value twice, the last one counts, as in a tile.
  using Columns = std::vector<std::pair<const StepPart*, size_t>>;
  void Add(const Columns& columns, int64_t step, uint32_t attempt);

  // Fills in all but site and role. Call once.
  void Finish(v1::SeriesColumns* out);

 private:
  static constexpr int32_t kNoRow = -1;
  struct Cell {
    double min = 0, max = 0, sum = 0;
    uint32_t count = 0, non_finite = 0;
  };

  bool exact() const { return shape_.bucket_steps == 1 && !shape_.over_ranks; }
  size_t BucketOf(int64_t step) const {
    return static_cast<size_t>(static_cast<uint64_t>(step - shape_.first_step) /
                               shape_.bucket_steps);
  }
  const std::array<int32_t, kTileRanks>* RowsOf(uint32_t rank_block) const;
  void Put(size_t row, size_t bucket, double value);
  void AddExact(const Tile& tile, size_t begin, size_t end, const std::array<int32_t, 64>& rows);
  void FinishExact(const std::vector<size_t>& used, v1::SeriesColumns* out);
  void FinishReduced(const std::vector<size_t>& used, v1::SeriesColumns* out);

  const GridShape shape_;
  const size_t buckets_;
  std::unordered_map<uint32_t, std::array<int32_t, kTileRanks>> rows_;  // by rank block
  google::protobuf::RepeatedField<double> values_;                      // exact: [rows, buckets]
  std::vector<uint8_t> present_;  // exact: [rows, buckets], 1: has a value
  std::vector<Cell> cells_;       // reduced: [rows, buckets]
  std::vector<uint8_t> used_;     // one per bucket: 1 if it has a value
  std::vector<uint32_t> attempts_;
  std::vector<size_t> bucket_of_;  // of the steps of the current tile
};

}  // namespace plumbline::server
