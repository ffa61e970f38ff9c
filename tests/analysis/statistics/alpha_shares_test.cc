// Tests shares of alpha by order of appearance: their sum is at most one, and the probability of
// any false alarm is within the budget even if an adversary chooses the time at which streams
// appear.
#include "analysis/statistics/alpha_shares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "analysis/experts/experts.h"
#include "analysis/statistics/bias_stream.h"

namespace plumbline::analysis {
namespace {

TEST(AlphaShares, TheKthStreamGetsItsShareOfItsRole) {
  AlphaShares shares;
  EXPECT_DOUBLE_EQ(shares.Next(v1::ROLE_TRAINER), 0.5 * 6 / (M_PI * M_PI));
  EXPECT_DOUBLE_EQ(shares.Next(v1::ROLE_TRAINER), 0.5 * 6 / (M_PI * M_PI * 4));
  EXPECT_DOUBLE_EQ(shares.Next(v1::ROLE_ROLLOUT), 0.25 * 6 / (M_PI * M_PI));
  EXPECT_DOUBLE_EQ(shares.Next(v1::ROLE_TRAINER), 0.5 * 6 / (M_PI * M_PI * 9));
}

TEST(AlphaShares, AnyNumberOfStreamsOfAnyRolesIsWithinOne) {
  double roles = 0;
  for (int role = 0; role < 64; ++role) roles += ShareOfRole(static_cast<v1::Role>(role));
  EXPECT_LE(roles, 1);
  EXPECT_GT(roles, 0.999) << "nothing is wasted";
  double streams = 0;
  for (uint64_t k = 1'000'000; k-- > 0;) streams += ShareOfNumber(k);
  EXPECT_LE(streams, 1);
  EXPECT_GT(streams, 0.999);
  EXPECT_GT(ShareOfNumber(UINT64_MAX - 1), 0) << "the last one can alarm, too";
}

TEST(AlphaShares, TheNumbersAreInTheCheckpoint) {
  AlphaShares shares;
  for (int i = 0; i < 3; ++i) shares.Next(v1::ROLE_TRAINER);
  Archive out;
  out(shares);
  AlphaShares back;
  const std::string bytes = out.Take();
  Archive in(bytes);
  in(back);
  ASSERT_TRUE(in.ok());
  EXPECT_EQ(back.Next(v1::ROLE_TRAINER), shares.Next(v1::ROLE_TRAINER));
}

// A likelihood ratio for samples without the assumed mean: a martingale with little loss.
struct Wealth {
  double alarm;  // ln 1/alpha
  double log = 0;
  bool Bet(double x) {
    constexpr double kMean = 0.5;
    log += kMean * x - kMean * kMean / 2;
    return log >= alarm;
  }
};

// Returns true if any stream alarms. A new stream appears each time the newest has lost, so its
// start depends on earlier results.
bool AnyAlarm(double budget, uint64_t seed) {
  constexpr int kSteps = 150;
  constexpr size_t kMostStreams = 40;
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  AlphaShares shares;
  std::vector<Wealth> streams;
  const auto appear = [&] {
    const v1::Role role = streams.size() % 2 == 0 ? v1::ROLE_TRAINER : v1::ROLE_ROLLOUT;
    streams.push_back({-std::log(budget * shares.Next(role))});
  };
  appear();
  for (int step = 0; step < kSteps; ++step) {
    for (Wealth& stream : streams) {
      if (stream.Bet(normal(rng))) return true;
    }
    if (streams.back().log < -1 && streams.size() < kMostStreams) appear();
  }
  return false;
}

TEST(AlphaShares, TheLevelOfAllStreamsTogether) {
  constexpr uint64_t kRuns = 20000;
  for (const double budget : {.05, .01}) {
    uint64_t alarms = 0;
    for (uint64_t run = 0; run < kRuns; ++run) alarms += AnyAlarm(budget, run + 1) ? 1 : 0;
    std::printf("  budget %.2f: %llu of %llu runs alarm\n", budget,
                static_cast<unsigned long long>(alarms), static_cast<unsigned long long>(kRuns));
    EXPECT_GT(LogBinomialAtLeast(kRuns, budget, alarms), std::log(1e-5)) << budget;
    EXPECT_GT(static_cast<double>(alarms), budget * kRuns / 4) << "little is wasted";
  }
}

// Tests the streams of the bias rules: rounding errors without bias, for tensors that appear
// sequentially.
TEST(AlphaShares, TheLevelOfBiasStreams) {
  constexpr uint64_t kRuns = 1000;
  constexpr int kStreams = 12;
  for (const double budget : {.05, .01}) {
    uint64_t alarms = 0;
    for (uint64_t run = 0; run < kRuns; ++run) {
      std::mt19937_64 rng(run + 1);
      std::uniform_real_distribution<double> rounding(-.5 + kBiasBudgetUlp, .5 + kBiasBudgetUlp);
      AlphaShares shares;
      bool alarm = false;
      for (int k = 0; k < kStreams; ++k) {
        BiasStream stream(budget * shares.Next(v1::ROLE_TRAINER));
        std::vector<double> errors(400);
        for (double& e : errors) e = rounding(rng);
        stream.Add(errors, std::nullopt);
        alarm |= stream.alarmed();
      }
      alarms += alarm ? 1 : 0;
    }
    std::printf("  budget %.2f: %llu of %llu runs alarm\n", budget,
                static_cast<unsigned long long>(alarms), static_cast<unsigned long long>(kRuns));
    EXPECT_GT(LogBinomialAtLeast(kRuns, budget, alarms), std::log(1e-5)) << budget;
  }
}

}  // namespace
}  // namespace plumbline::analysis
