#include "analysis/series/stall.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::rules {
namespace {

constexpr size_t kFirst = 16;
constexpr size_t kBlocks = 96;

}  // namespace

bool StallFigures::from_the_beginning() const { return newest > begin + std::log(0.98); }

void Stall::Take(int64_t step, double y) {
  if (first_.size() < kFirst) first_.push_back(y);
  blocks_.Add(step, y);
  ++count_;
}

StallFigures Stall::Look() const {
  StallFigures figures;
  figures.points = count_;
  if (count_ < kFewest) return figures;
  const auto& blocks = blocks_.blocks();
  const size_t from = blocks.size() / 2;
  const GatheredBlocks newest = Gather(blocks_, from, kBlocks);
  std::vector<double> x;
  for (size_t i = 0; i < newest.medians.size(); ++i) {
    const double before = static_cast<double>(from * blocks_.length() + i * newest.length);
    x.push_back(std::log(before + static_cast<double>(newest.length + 1) / 2));
  }
  const SlopeInterval slope = TheilSen(x, newest.medians);
  figures.slope = slope.slope;
  figures.low = slope.low;
  figures.high = slope.high;
  std::vector<double> first = first_, half = newest.medians;
  figures.begin = MedianOf(first);
  figures.newest = MedianOf(half);
  figures.half_step = blocks[from].step;
  figures.known = true;
  return figures;
}

}  // namespace plumbline::rules
