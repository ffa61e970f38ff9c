// Tests BatchHistory against a search through all earlier steps, its memory, and what it forgets;
// and when an epoch may end.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "analysis/batches/batches.h"
#include "base/archive.h"

namespace plumbline::analysis {
namespace {

struct StepDigest {
  uint32_t attempt = 0;
  int64_t step = 0;
  uint64_t digest = 0;
};

// Returns the streak of the newest step by its definition, from that of the step before.
BatchStreak Expected(const std::vector<StepDigest>& all, const BatchStreak& before,
                     std::optional<size_t>* at) {
  const StepDigest& now = all.back();
  std::optional<size_t> newest, found;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i].digest == now.digest) newest = i;
  }
  const bool same_attempt = all.size() > 1 && all[all.size() - 2].attempt == now.attempt;
  bool goes_on = false;
  if (same_attempt && before.steps > 0 && *at && **at + 2 < all.size()) {
    const StepDigest& next = all[**at + 1];
    goes_on = next.digest == now.digest && next.attempt == before.attempt &&
              next.step - before.then_last == now.step - before.now_last;
  }
  found = goes_on ? std::optional(**at + 1) : newest;
  *at = found;
  if (!found) return {};
  const StepDigest& then = all[*found];
  BatchStreak streak = before;
  if (!goes_on) streak = {.attempt = then.attempt, .then = then.step, .now = now.step};
  ++streak.steps;
  streak.fresh += found == newest ? 1 : 0;
  streak.then_last = then.step;
  streak.now_last = now.step;
  return streak;
}

void ExpectSame(const BatchStreak& a, const BatchStreak& b) {
  EXPECT_EQ(a.steps, b.steps);
  if (a.steps == 0 || b.steps == 0) return;
  EXPECT_EQ(a.fresh, b.fresh);
  EXPECT_EQ(a.attempt, b.attempt);
  EXPECT_EQ(a.then, b.then);
  EXPECT_EQ(a.then_last, b.then_last);
  EXPECT_EQ(a.now, b.now);
  EXPECT_EQ(a.now_last, b.now_last);
}

TEST(BatchHistory, FindsTheStreaksThatASearchFinds) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 200; ++run) {
    BatchHistory history;
    std::vector<StepDigest> all;
    BatchStreak expected;
    std::optional<size_t> at;
    const uint64_t values = 1 + random() % 60, repeats = random() % 3;
    StepDigest now;
    for (int i = 0; i < 200; ++i) {
      if (random() % 60 == 0) now = {.attempt = now.attempt + 1, .step = now.step / 2};
      now.step += random() % 20 == 0 ? 2 : 1;
      const size_t lag = 1 + random() % 3 * 20;
      now.digest = repeats > 0 && random() % 8 != 0 && all.size() >= lag
                       ? all[all.size() - lag].digest
                       : random() % values;
      all.push_back(now);
      expected = Expected(all, expected, &at);
      ExpectSame(history.Add(now.attempt, now.step, now.digest), expected);
    }
    for (const StepDigest& one : all) {
      std::optional<uint64_t> before;
      for (const StepDigest& other : all) {
        if (other.attempt < one.attempt && other.step == one.step) before = other.digest;
      }
      EXPECT_EQ(history.Before(one.attempt, one.step), before);
    }
  }
}

TEST(BatchHistory, ForgetsTheOldestStepsAndStatesHowMany) {
  BatchHistory history;
  const auto digest = [](uint64_t step) { return (step + 1) * 0x9E3779B97F4A7C15; };
  constexpr auto kSteps = static_cast<int64_t>(BatchHistory::kMost + 5000);
  for (int64_t s = 0; s < kSteps; ++s) history.Add(0, s, digest(static_cast<uint64_t>(s)));
  EXPECT_LE(history.bytes(), size_t{12} << 20);
  EXPECT_EQ(history.forgotten(), BatchHistory::kMost / 2);
  EXPECT_EQ(history.size() + history.forgotten(), static_cast<size_t>(kSteps));
  const auto oldest = static_cast<int64_t>(history.forgotten());
  EXPECT_EQ(history.Add(1, kSteps, digest(static_cast<uint64_t>(oldest - 1))).steps, 0u);
  EXPECT_EQ(history.Add(1, kSteps + 1, digest(static_cast<uint64_t>(oldest))).then, oldest);
  EXPECT_EQ(history.Add(1, kSteps + 2, digest(static_cast<uint64_t>(oldest + 1))).steps, 2u);
}

TEST(BatchHistory, AStreakGoesOnWhileOldStepsAreForgotten) {
  BatchHistory history;
  constexpr int64_t kEpoch = 1000;
  constexpr auto kSteps = static_cast<int64_t>(BatchHistory::kMost + 2000);
  for (int64_t s = 0; s < kSteps; ++s)
    history.Add(0, s, 7919 * static_cast<uint64_t>(s % kEpoch + 1));
  const BatchStreak& streak = history.Add(0, kSteps, 7919 * (kSteps % kEpoch + 1));
  EXPECT_EQ(streak.steps, static_cast<uint64_t>(kSteps + 1 - kEpoch));
  EXPECT_EQ(streak.fresh, streak.steps);
}

TEST(BatchHistory, ComesBackFromACheckpoint) {
  std::mt19937_64 random(2);
  BatchHistory history;
  for (int64_t s = 0; s < 300; ++s) history.Add(0, s, random() % 40);
  Archive out;
  history.Persist(out);
  const std::string bytes = out.Take();
  BatchHistory copy;
  Archive in(bytes);
  copy.Persist(in);
  ASSERT_TRUE(in.ok()) << in.error();
  for (int64_t s = 300; s < 500; ++s) {
    const uint64_t digest = random() % 40;
    ExpectSame(copy.Add(0, s, digest), history.Add(0, s, digest));
  }
}

TEST(BatchHistory, IgnoresStepsThatCannotBe) {
  BatchHistory history;
  history.Add(0, 5, 1);
  history.Add(0, 5, 2);
  history.Add(0, 4, 2);
  history.Add(0, -1, 2);
  history.Add(0, INT64_MAX, 2);
  history.Add(UINT32_MAX, 6, 2);
  EXPECT_EQ(history.size(), 1u);
}

TEST(EpochEnd, MayBeNearEachEndAndWhereNothingIsKnown) {
  for (const double batches : {97.0, 100.0, 103.0}) {
    for (int64_t step = 0; step < 300; ++step) {
      const double epoch = batches / 2;
      const double past = std::fmod(static_cast<double>(step), epoch);
      const bool near = std::min(past, epoch - past) < 4;
      EXPECT_TRUE(!near || MayEndEpoch(step, batches, 2)) << step;
    }
    EXPECT_FALSE(MayEndEpoch(25, batches, 2));
    EXPECT_TRUE(MayEndEpoch(25, batches, 16)) << "too short to know";
  }
  for (const double unknown :
       {static_cast<double>(NAN), 0.0, -1.0, static_cast<double>(INFINITY)}) {
    EXPECT_TRUE(MayEndEpoch(25, unknown, 2));
    EXPECT_TRUE(MayEndEpoch(25, 100, unknown));
  }
}

}  // namespace
}  // namespace plumbline::analysis
