// Tests d on multiples of a power of two: found if the logits of both sides are rounded, otherwise
// not.
#include "analysis/drift/values/lattice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace plumbline::analysis {
namespace {

// Returns differences of two roundings, with the remainder of the log-sums.
Lattice OfRounded(double unit, double jitter, int tokens, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  DriftLattice lattice;
  for (int i = 0; i < tokens; ++i)
    lattice.Add(unit * std::round(1.5 * normal(engine)) + jitter * unit * normal(engine));
  return lattice.Find();
}

TEST(DriftLattice, FindsTheUnit) {
  for (const double unit : {0x1p-7, 0x1p-5, 0x1p-3}) {
    const Lattice found = OfRounded(unit, 0.05, 4000, 3);
    EXPECT_TRUE(found.found) << unit;
    EXPECT_EQ(found.unit, unit);
    EXPECT_GT(found.share, 0.8);
  }
}

TEST(DriftLattice, PowerOverWhatTheLogSumsLeave) {
  for (const double jitter : {0.02, 0.05, 0.1, 0.15, 0.3}) {
    int found = 0;
    for (uint64_t seed = 1; seed <= 50; ++seed)
      found += OfRounded(0x1p-5, jitter, 4000, seed).found;
    std::printf("%.2f of a unit of jitter: found in %d of 50\n", jitter, found);
    EXPECT_EQ(found, jitter <= 0.1 ? 50 : jitter >= 0.3 ? 0 : found);
  }
}

TEST(DriftLattice, SilentOnNoiseOfAnyScaleAndShape) {
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  for (int run = 0; run < 400; ++run) {
    DriftLattice lattice;
    const double scale = std::exp2(-10 + 0.02 * run);
    for (int i = 0; i < 3000; ++i) {
      const double heavy = run % 2 == 0 ? 1 : std::exp(1.3 * normal(engine));
      lattice.Add(scale * heavy * normal(engine));
    }
    EXPECT_FALSE(lattice.Find().found) << run;
  }
}

// Tests one or a few contexts: repeated values have no information in their phase.
TEST(DriftLattice, RepeatedValuesCountOnce) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    std::vector<double> few(24);
    for (double& d : few) d = 0.05 * normal(engine);
    if (seed == 1) few.assign(24, 0.25);
    DriftLattice lattice;
    for (int i = 0; i < 20000; ++i) lattice.Add(few[engine() % few.size()]);
    EXPECT_FALSE(lattice.Find().found) << seed;
  }
}

// Tests a few contexts whose values vary slightly between sequences: each is a cluster of distinct
// values, and one or two of them may be near a multiple.
TEST(DriftLattice, ClustersAreNoLattice) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    std::vector<double> contexts(1 + seed % 5);
    for (double& d : contexts) d = 0.15 * normal(engine);
    if (seed == 1) contexts.assign(1, 0.125);
    DriftLattice lattice;
    for (int i = 0; i < 4000; ++i)
      lattice.Add(contexts[engine() % contexts.size()] + 0.003 * normal(engine));
    found += lattice.Find().found;
    EXPECT_FALSE(contexts.size() < 4 && lattice.Find().found) << seed;
  }
  EXPECT_LE(found, 2);  // four or five clusters near multiples by chance
}

// Tests that values from text with few digits have a decimal lattice, which is none of these.
TEST(DriftLattice, DecimalsAreNoPowersOfTwo) {
  std::mt19937_64 engine(9);
  std::normal_distribution<double> normal;
  for (const double unit : {0.1, 0.01, 1e-3, 1e-4}) {
    DriftLattice lattice;
    for (int i = 0; i < 20000; ++i) lattice.Add(unit * std::round(0.05 * normal(engine) / unit));
    EXPECT_FALSE(lattice.Find().found) << unit;
  }
}

TEST(DriftLattice, FewTokensAndPoison) {
  EXPECT_FALSE(DriftLattice().Find().found);
  EXPECT_FALSE(OfRounded(0x1p-5, 0.05, 30, 1).found);
  DriftLattice lattice;
  for (const double d : {0.0, -0.0, 1e300, -1e-300, 17.0}) lattice.Add(d);
  EXPECT_EQ(lattice.Find().tokens, 0u);
}

}  // namespace
}  // namespace plumbline::analysis
