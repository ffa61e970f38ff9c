// Tests paired, interleaved differences over simulated times: the reported difference equals the
// simulated one, despite drift, order effects and noise.
#include "bench/gpu/paired.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace plumbline::gpu {
namespace {

constexpr double kPart = 9e-6, kExtra = 0.8e-6;

// Runs two variants of one task on a machine whose lumps take `slow(lump)` times as long, plus
// `besides(lump)`.
struct Machine {
  std::function<double(int)> slow = [](int) { return 1.0; };
  std::function<double(int)> besides = [](int) { return 0.0; };
  int lump = 0;

  double Lump(double seconds) {
    const double took = slow(lump) * seconds + besides(lump);
    ++lump;
    return took;
  }
  PairedDifferences Run(int pairs) {
    PairedDifferences differences;
    for (int i = 0; i < pairs; ++i) {
      EXPECT_TRUE(
          differences.Take([&] { return Lump(kPart + kExtra); }, [&] { return Lump(kPart); }));
    }
    return differences;
  }
};

TEST(Paired, ADifferenceIsFound) {
  Machine machine;
  const PairedDifferences found = machine.Run(40);
  EXPECT_EQ(found.pairs(), 20u);
  EXPECT_NEAR(found.At(0.5), kExtra, 1e-15);
  EXPECT_NEAR(found.At(0.25), kExtra, 1e-15);
  EXPECT_NEAR(found.last_whole(), kPart + kExtra, 1e-15);
}

// The order alternates: ring, bare, bare, ring, ring, ...
TEST(Paired, EachWayIsFirstInTurns) {
  std::vector<char> order;
  PairedDifferences differences;
  for (int i = 0; i < 4; ++i) {
    differences.Take(
        [&] {
          order.push_back('w');
          return 1.0;
        },
        [&] {
          order.push_back('p');
          return 1.0;
        });
  }
  EXPECT_EQ(std::string(order.begin(), order.end()), "wppwwppw");
}

// The clock falls by a third over the run. The difference of two means, as from separate runs,
// would have an error larger than the simulated difference.
TEST(Paired, ADriftCancels) {
  Machine machine;
  machine.slow = [](int lump) { return 1 + lump / 600.0; };
  const PairedDifferences found = machine.Run(100);
  // The middle of the run is 1/6 slower, so the measured difference is 1/6 larger.
  EXPECT_NEAR(found.At(0.5), kExtra * (1 + 100 / 600.0), 0.02e-6);
  EXPECT_GT(found.At(0.25), kExtra * 0.99);
}

// The second lump of each pair is slower because of the first one.
TEST(Paired, OrderEffectsCancel) {
  Machine machine;
  machine.besides = [](int lump) { return lump % 2 == 1 ? 2e-6 : 0; };
  const PairedDifferences found = machine.Run(50);
  EXPECT_NEAR(found.At(0.5), kExtra, 1e-15);
  EXPECT_NEAR(found.At(0.75), kExtra, 1e-15);
}

// One of ten lumps has an interrupt, and all have noise.
TEST(Paired, RareInterruptsMoveTheMedianLittle) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.3e-6);
  Machine machine;
  machine.besides = [&](int lump) { return noise(random) + (lump % 10 == 3 ? 200e-6 : 0); };
  const PairedDifferences found = machine.Run(400);
  EXPECT_NEAR(found.At(0.5), kExtra, 0.15e-6);
}

// If a lump of a pair failed, the pair is not counted, and Take returns false.
TEST(Paired, ALumpThatFailsIsReported) {
  PairedDifferences differences;
  EXPECT_FALSE(differences.Take([] { return -1.0; }, [] { return 1.0; }));
  EXPECT_FALSE(differences.Take([] { return 1.0; }, [] { return -1.0; }));
  EXPECT_EQ(differences.pairs(), 0u);
  EXPECT_EQ(differences.At(0.5), 0);
}

TEST(Paired, QuantilesLieBetweenNeighbours) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({3}, 0.25), 3);
  EXPECT_EQ(Quantile({4, 1}, 0.5), 2.5);
  EXPECT_EQ(Quantile({4, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({0, 1, 2, 3, 4}, 0.75), 3);
  EXPECT_EQ(Quantile({0, 1}, 1), 1);
}

}  // namespace
}  // namespace plumbline::gpu
