// Finds where two groups of loss curves diverge. Seeds and noise are allowed for; a lasting step or
// drift is not. The only header of this folder. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace plumbline::departure {

// ln loss of each run, at the points that all runs of both sides have, in order; all finite.
using Curves = std::vector<std::vector<double>>;

struct Departure {
  size_t onset = 0;      // the first point that differs, as far as it can be determined
  double size = 0;       // difference of ln loss, b minus a: median over the three blocks that
                         // showed it
  double threshold = 0;  // T at the first of them
  size_t block = 0;      // points per block
};

struct Comparison {
  size_t points = 0;
  size_t block = 0;     // points per block of the finer of the two sizes; 0 if there were too few
                        // points to judge
  double smallest = 0;  // T, median over blocks: smaller differences may be due to seeds
  // True if some side has two runs; otherwise seeds are assumed to differ by 0.3 %.
  bool seeds_known = false;
  std::optional<Departure> departure;
};

inline constexpr size_t kLeastBlock = 8, kLeastBlocks = 8;
inline constexpr double kAssumedSeeds = 0.003;  // standard deviation of ln loss between seeds
inline constexpr double kAssumedFreedom = 6;    // its degrees of freedom

// Each side has at least one run; all runs have the same length. If there are fewer than 64 points,
// the curves are not judged.
Comparison Compare(const Curves& a, const Curves& b);

// ---- too few points for blocks, and the ends ----

struct EndDifference {
  size_t points = 0;  // number of the newest common points: an eighth, at least 3 (or all of them)
  double size = 0;    // difference of ln loss, b minus a, each the mean of its runs: median over
                      // these points
};
// If there is no point, `points` is 0.
EndDifference EndsApart(const Curves& a, const Curves& b);

// Which side is above, by a sign test that needs no block length.
struct FewPoints {
  size_t points = 0;  // number of points in the newest half, at least 8 if there are as many
  size_t above = 0;   // points at which b is above a
  double size = 0;    // difference of ln loss: median over these points
  double chance = 1;  // probability of at least as many on one side if neither is above: two-sided
  // True if chance <= kSignChance and the size exceeds the assumed difference of seeds.
  bool apart = false;
};
inline constexpr double kSignChance = 0.01;
inline constexpr double kSeedsApart = 0.018;  // a difference of ln loss: 6 kAssumedSeeds
FewPoints SignTest(const Curves& a, const Curves& b);

}  // namespace plumbline::departure
