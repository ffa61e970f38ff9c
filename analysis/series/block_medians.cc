#include "analysis/series/block_medians.h"

#include <algorithm>
#include <cmath>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

BlockMedians::Block MiddleOf(const BlockMedians::Block& a, const BlockMedians::Block& b,
                             const BlockMedians::Block& c) {
  const double low = std::min(a.median, b.median), high = std::max(a.median, b.median);
  return {std::max(low, std::min(high, c.median)), a.step};
}

}  // namespace

void BlockMedians::Put(size_t level, const Block& block) {
  if (level < open_.size()) {
    Level& open = open_[level];
    if (open.count < 2) {
      open.held[open.count++] = block;
      return;
    }
    open.count = 0;
    return Put(level + 1, MiddleOf(open.held[0], open.held[1], block));
  }
  blocks_.push_back(block);
  if (blocks_.size() < kMost) return;
  for (size_t i = 0; i < kMost / 3; ++i)
    blocks_[i] = MiddleOf(blocks_[3 * i], blocks_[3 * i + 1], blocks_[3 * i + 2]);
  blocks_.resize(kMost / 3);
  open_.emplace_back();
  length_ *= 3;
}

GatheredBlocks Gather(const BlockMedians& of, size_t from, size_t most) {
  GatheredBlocks gathered;
  const auto& blocks = of.blocks();
  const size_t count = blocks.size() - std::min(from, blocks.size());
  const size_t each = std::max<size_t>(1, (count + most - 1) / most);
  gathered.length = of.length() * each;
  std::vector<double> group;
  for (size_t i = from; i + each <= blocks.size(); i += each) {
    group.clear();
    for (size_t k = i; k < i + each; ++k) group.push_back(blocks[k].median);
    gathered.medians.push_back(MedianOf(group));
  }
  return gathered;
}

bool GoesUpAndDown(const BlockMedians& all, double low, double high, int64_t onset) {
  constexpr int kFewestTimes = 3;
  const double quarter = (high - low) / 4;
  int times = 0, longest = 0, newest = 0, stay = 0, before = 0, high_before = 0;
  bool was_below = false, above = true;
  for (const BlockMedians::Block& block : all.blocks()) {
    above = block.median >= high - quarter || (above && block.median > low + quarter);
    stay = above && was_below ? stay + 1 : stay;
    if (block.step >= onset) {
      newest = std::max(newest, stay);
    } else if (was_below) {
      ++before;
      high_before += above ? 1 : 0;
    }
    if (above) continue;
    if (block.step < onset && stay > 0) {
      ++times;
      longest = std::max(longest, stay);
    }
    stay = 0;
    was_below = true;
  }
  if (times < kFewestTimes) return false;
  // The longest stay that chance makes in one of a hundred series, if each point draws its level.
  const double share = (high_before + 1.0) / (before + 2.0);
  const double by_chance = std::log(0.01 / (before + newest)) / std::log(share);
  return newest <= std::max<double>(2 * longest, by_chance);
}

}  // namespace plumbline::analysis
