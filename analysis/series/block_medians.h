// A stream cut into at most 287 blocks of equal length, and the median of each: blocks of 1, 3, 9,
// ... points, three becoming one (the median of their medians) as the stream grows.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

class BlockMedians {
 public:
  static constexpr size_t kMost = 288;

  struct Block {
    double median = 0;
    int64_t step = 0;  // of its first point
    void Persist(Archive& a) { a(median, step); }
  };

  void Add(int64_t step, double y) { Put(0, {y, step}); }
  const std::vector<Block>& blocks() const { return blocks_; }  // whole ones
  uint64_t length() const { return length_; }                   // points of a block

  void Persist(Archive& a) { a(blocks_, open_, length_); }

 private:
  // Blocks of 3^level points that wait for a third one.
  struct Level {
    std::array<Block, 2> held;
    uint32_t count = 0;
    void Persist(Archive& a) { a(held, count); }
  };
  void Put(size_t level, const Block& block);

  std::vector<Block> blocks_;
  std::vector<Level> open_;  // one for each level below that of whole blocks
  uint64_t length_ = 1;
};

// At most `most` blocks, gathered from those from number `from` on: the medians of so many in a row
// as are needed. What does not fill one at the end is left out.
struct GatheredBlocks {
  std::vector<double> medians;
  uint64_t length = 1;  // points of each
};
GatheredBlocks Gather(const BlockMedians& of, size_t from, size_t most);

}  // namespace plumbline::rules
