// Cuts a stream into at most 287 blocks of equal length and keeps the median of each block. Blocks
// have 1, 3, 9, ... points. If the stream grows, three blocks become one: the median of their
// medians.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

class BlockMedians {
 public:
  static constexpr size_t kMost = 288;

  struct Block {
    double median = 0;
    int64_t step = 0;  // step of the block's first point
    void Persist(Archive& a) { a(median, step); }
  };

  void Add(int64_t step, double y) { Put(0, {y, step}); }
  const std::vector<Block>& blocks() const { return blocks_; }  // complete blocks, oldest first
  uint64_t length() const { return length_; }                   // points per block

  void Persist(Archive& a) { a(blocks_, open_, length_); }

 private:
  // Holds blocks of 3^level points until a third one arrives.
  struct Level {
    std::array<Block, 2> held;
    uint32_t count = 0;
    void Persist(Archive& a) { a(held, count); }
  };
  void Put(size_t level, const Block& block);

  std::vector<Block> blocks_;
  std::vector<Level> open_;  // one level for each block length below length_
  uint64_t length_ = 1;
};

// At most `most` blocks from block number `from` on. Each is the median of an equal number of
// consecutive blocks. Leaves out blocks at the end that do not fill such a block.
struct GatheredBlocks {
  std::vector<double> medians;
  uint64_t length = 1;  // points per block
};
GatheredBlocks Gather(const BlockMedians& of, size_t from, size_t most);

// Detects a series that alternates between two levels, such as the loss of a run that draws one of
// two tasks per step. Its newest stay at the upper level is then no rise. Returns true if, before
// the step `onset`, the series rose from `low` to `high` and came back at least three times, and
// its longest stay above since then is at most twice the longest one before. A longer stay also
// counts if it may be chance, because each point draws its level. Ignores blocks above before the
// first block below, because a loss begins high. A rise must reach the upper quarter between `low`
// and `high`, and end in the lower quarter, so that noise in a falling curve is no rise.
bool GoesUpAndDown(const BlockMedians& all, double low, double high, int64_t onset);

}  // namespace plumbline::analysis
