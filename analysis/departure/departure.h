// Where two groups of loss curves part: seeds and noise are allowed for, a step or a drift that
// stays is not. The room's only header. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace plumbline::departure {

// ln loss of each run at the points that all runs of both sides have, in their order; all finite.
using Curves = std::vector<std::vector<double>>;

struct Departure {
  size_t onset = 0;      // the first point that lies apart, as far as it can be told
  double size = 0;       // of ln loss: median over the three blocks that gave it away, b less a
  double threshold = 0;  // T at the first of them
  size_t block = 0;      // points a block
};

struct Comparison {
  size_t points = 0;
  size_t block = 0;          // of the finer of the two sizes; 0: too few points, not judged
  double smallest = 0;       // T, median over blocks: what lies below cannot be told from seeds
  bool seeds_known = false;  // some side has two runs; else seeds are assumed to differ by 0.3 %
  std::optional<Departure> departure;
};

inline constexpr size_t kLeastBlock = 8, kLeastBlocks = 8;
inline constexpr double kAssumedSeeds = 0.003;  // standard deviation of ln loss between seeds
inline constexpr double kAssumedFreedom = 6;    // degrees that this counts as

// Sides of at least one run each, all of the same length. Fewer than 64 points: not judged.
Comparison Compare(const Curves& a, const Curves& b);

// ---- too few points for blocks, and the ends ----

struct EndDifference {
  size_t points = 0;  // the newest of the common ones: an eighth, 3 at least (or all there are)
  double size = 0;    // of ln loss, median over them: b less a, each the mean of its runs
};
// Of no point: 0 points.
EndDifference EndsApart(const Curves& a, const Curves& b);

// Which side lies above, by a sign test that needs no length of a block.
struct FewPoints {
  size_t points = 0;   // of the newest half, at least 8 where there are as many
  size_t above = 0;    // at these b lies above a
  double size = 0;     // of ln loss, median over them
  double chance = 1;   // of so many on one side, or more, where neither is above: two-sided
  bool apart = false;  // chance <= kSignChance, and the size is beyond what seeds are assumed to do
};
inline constexpr double kSignChance = 0.01;
inline constexpr double kSeedsApart = 0.018;  // of ln loss, 6 kAssumedSeeds
FewPoints SignTest(const Curves& a, const Curves& b);

}  // namespace plumbline::departure
