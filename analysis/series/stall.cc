#include "analysis/series/stall.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kFirst = 16;
constexpr size_t kBlocks = 96;
constexpr double kErrors = 6;  // equal to the limit of health/loss-divergence

}  // namespace

bool StallFigures::from_the_beginning() const {
  const double enough = begin + std::log(0.98);
  return newest > enough && !(lowest < enough - kErrors * noise);
}

bool StallFigures::rose() const { return newest >= lowest + std::log(1.1) + kErrors * noise; }

double Stall::NeighbourSigma() const {
  std::vector<double> values;
  for (const BlockMedians::Block& block : blocks_.blocks()) values.push_back(block.median);
  return SigmaOfNeighbours(values);
}

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
  const GatheredBlocks all = Gather(blocks_, 0, kBlocks);
  std::vector<double>
      steps;  // differences of neighbouring blocks; a few jumps do not change their spread
  for (size_t i = 1; i < all.medians.size(); ++i)
    steps.push_back(all.medians[i] - all.medians[i - 1]);
  figures.noise = DeviationOf(steps) / std::sqrt(2.0);
  figures.lowest = *std::min_element(all.medians.begin(), all.medians.end());
  std::vector<double> first = first_, half = newest.medians;
  figures.begin = MedianOf(first);
  figures.newest = MedianOf(half);
  figures.half_step = blocks[from].step;
  figures.known = true;
  return figures;
}

}  // namespace plumbline::analysis
