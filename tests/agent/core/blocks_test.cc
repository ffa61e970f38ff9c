// The parts that work without a run: cadence, sites, losses, spans, options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "agent/core/shared/options.h"
#include "agent/core/sites/cadence.h"
#include "agent/core/sites/governor.h"
#include "agent/core/sites/looks.h"
#include "agent/core/sites/losses.h"
#include "agent/core/sites/site_table.h"
#include "agent/core/sites/span_table.h"

namespace plumbline::agent {
namespace {

using ::testing::HasSubstr;

// ---- looks -----------------------------------------------------------------------------------

TEST(Looks, AreGivenFromTheOpenStepOnAndNotTwice) {
  Looks looks(3072);
  EXPECT_FALSE(looks.Covers(0));
  EXPECT_EQ(looks.Query(100, 8, 1000), 107);
  EXPECT_TRUE(looks.Covers(107) && !looks.Covers(108) && !looks.Covers(-1));
  EXPECT_EQ(looks.Query(103, 8, 1000), 110);  // 3 more
  EXPECT_EQ(looks.Query(103, 2, 1000), 110);  // none
  const auto covered = [&](SiteKind kind, const char* op) {
    Site site;
    site.kind = kind;
    site.op = op;
    return looks.Covers(site, 110);
  };
  EXPECT_TRUE(covered(SiteKind::kTensor, "weight"));
  EXPECT_TRUE(covered(SiteKind::kReduction, "accumulation"));
  // Observations that several ranks must measure in the same steps are not included in one rank's
  // look.
  EXPECT_FALSE(covered(SiteKind::kReduction, "sum") || covered(SiteKind::kLogprobs, "logprobs"));
}

// A caller that requests in every step gets 1 step in 32 after the first 16 steps, and never more
// than half of the bytes that the run may send.
TEST(Looks, HaveABudgetOfStepsAndOfBytes) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const uint64_t traffic = 1 + random() % 5000, bytes = random() % 3'000'000;
    Looks looks(traffic);
    int64_t looked = 0;
    const int64_t end = 1 + static_cast<int64_t>(random() % 3000);
    for (int64_t step = 0; step < end; ++step) {
      const int64_t until = looks.Query(step, 1 + random() % 8, bytes);
      EXPECT_EQ(looks.Covers(step), until >= step);
      looked += looks.Covers(step) ? 1 : 0;
    }
    EXPECT_LE(looked, Looks::kOpening + end / Looks::kOneIn);
    EXPECT_LE(bytes * static_cast<uint64_t>(looked),
              (512 + static_cast<uint64_t>(end) / 2) * traffic);
  }
}

// ---- cadence ---------------------------------------------------------------------------------

std::vector<int64_t> SampledSteps(Cadence* cadence, uint64_t sample, uint64_t summary,
                                  int64_t steps) {
  std::vector<int64_t> sampled;
  for (int64_t step = 0; step < steps; ++step) {
    if (cadence->SampleDue(step)) sampled.push_back(step);
    cadence->AtStepEnd(sample, summary);
  }
  return sampled;
}

TEST(Cadence, OpeningThenPowersOfTwoThenThePeriod) {
  Cadence cadence(1, 3072);
  // 40 KiB per step: 40960 / 3072 = 13.3, so the period is 16.
  const auto sampled = SampledSteps(&cadence, 40960, 0, 100);
  EXPECT_EQ(cadence.sample_period(), 16u);
  EXPECT_THAT(sampled, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 58, 64, 83));
}

TEST(Cadence, LongPeriodGoesThereInPowersOfTwo) {
  Cadence cadence(1, 3072);
  const auto sampled = SampledSteps(&cadence, 3072 * 100, 0, 1000);
  EXPECT_EQ(cadence.sample_period(), 128u);
  EXPECT_THAT(sampled, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 467,
                                              512, 669, 846, 935));
}

TEST(Cadence, SmallSamplesAreTakenEveryStep) {
  Cadence cadence(1, 3072);
  EXPECT_EQ(SampledSteps(&cadence, 2000, 1000, 200).size(), 200u);
}

// For all sizes, the average beyond the opening steps stays within the budget, and the period is
// the smallest power of two for which it does.
TEST(Cadence, AveragedBytesStayWithinTheBudget) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 500; ++trial) {
    const uint64_t budget = 1 + random() % 100000;
    const uint64_t sample = random() % (uint64_t{1} << (1 + random() % 33));
    const uint64_t summary = random() % (uint64_t{1} << (1 + random() % 20));
    const auto every = static_cast<uint32_t>(1 + random() % 10);
    Cadence cadence(every, budget);
    cadence.AtStepEnd(sample, summary);
    const auto p = static_cast<double>(cadence.sample_period());
    const auto q = static_cast<double>(cadence.summary_period());
    const double bytes =
        static_cast<double>(sample) / (every * p) + static_cast<double>(summary) / (every * q);
    EXPECT_LE(bytes, static_cast<double>(budget) + 1.0)
        << "sample " << sample << " summary " << summary << " every " << every;
    EXPECT_GE(p, q);
    EXPECT_EQ(std::exp2(std::round(std::log2(p))), p);
    if (p > q) {
      const double denser = static_cast<double>(sample) / (every * p / 2) +
                            static_cast<double>(summary) / (every * q);
      EXPECT_GT(denser, static_cast<double>(budget) - 2.0);
    }
  }
}

TEST(Cadence, PeriodsOnlyRise) {
  Cadence cadence(1, 3072);
  cadence.AtStepEnd(1 << 20, 1 << 14);
  const uint64_t p = cadence.sample_period(), q = cadence.summary_period();
  EXPECT_GT(q, 1u);
  cadence.AtStepEnd(1, 1);
  EXPECT_EQ(cadence.sample_period(), p);
  EXPECT_EQ(cadence.summary_period(), q);
}

TEST(Cadence, RanksWithOtherShapesJoinAtTheLargerPeriod) {
  Cadence a(1, 3072), b(1, 3072);
  const auto sampled_a = SampledSteps(&a, 50000, 300, 4096);
  const auto sampled_b = SampledSteps(&b, 400000, 300, 4096);
  const std::set<int64_t> in_a(sampled_a.begin(), sampled_a.end());
  for (const int64_t step : sampled_b) EXPECT_TRUE(in_a.count(step)) << step;
}

TEST(Cadence, EveryCountsInItsOwnSteps) {
  Cadence cadence(10, 3072);
  EXPECT_EQ(cadence.FirstDue(0), 0);
  EXPECT_EQ(cadence.FirstDue(3), 10);
  EXPECT_EQ(cadence.NextDue(0), 10);
  EXPECT_EQ(cadence.NextDue(9), 10);
  EXPECT_EQ(cadence.NextDue(10), 20);
  EXPECT_TRUE(cadence.SampleDue(70));
  cadence.AtStepEnd(1 << 30, 0);
  EXPECT_TRUE(cadence.SampleDue(80));
  EXPECT_FALSE(cadence.SampleDue(90));
}

TEST(Cadence, SurvivesExtremes) {
  Cadence cadence(4000000000u, uint64_t{1} << 40);
  cadence.AtStepEnd(~uint64_t{0}, ~uint64_t{0});
  Cadence tight(1, 1);
  tight.AtStepEnd(~uint64_t{0}, ~uint64_t{0});
  EXPECT_GE(tight.sample_period(), uint64_t{1} << 40);
  EXPECT_FALSE(tight.SampleDue(-5));
  EXPECT_GE(tight.NextDue(int64_t{1} << 40), int64_t{1} << 40);
}

std::vector<int64_t> DueSteps(const Cadence& cadence, size_t count, int64_t from = 0) {
  std::vector<int64_t> due;
  for (int64_t step = cadence.FirstDue(from); due.size() < count; step = cadence.NextDue(step))
    due.push_back(step);
  return due;
}

TEST(Cadence, StretchThinsDueStepsToSomeOfThose) {
  Cadence cadence(1, 3072);
  cadence.Stretch(8);
  EXPECT_THAT(DueSteps(cadence, 6), ::testing::ElementsAre(0, 8, 16, 29, 32, 41));
  EXPECT_TRUE(cadence.SampleDue(16));
  cadence.Stretch(1);
  EXPECT_EQ(cadence.NextDue(8), 9);
}

// One step in each block of a stretch is due. If a rank has twice the stretch, all other ranks
// measure the steps that it measures.
TEST(Cadence, DueStepsAreOneABlockAndNested) {
  Cadence cadence(1, 3072);
  std::set<int64_t> wider;
  for (uint64_t stretch = 1; stretch <= 1024; stretch *= 2) {
    cadence.Stretch(stretch);
    const auto due = DueSteps(cadence, 4096 / stretch);
    for (size_t i = 0; i < due.size(); ++i)
      EXPECT_EQ(due[i] / static_cast<int64_t>(stretch), static_cast<int64_t>(i));
    for (const int64_t step : due) {
      EXPECT_EQ(cadence.FirstDue(step), step);
      EXPECT_TRUE(stretch == 1 || wider.count(step)) << step;
    }
    wider = {due.begin(), due.end()};
  }
}

// An effect that is present only in one of m steps is sampled, at every position of the run and for
// every stretch.
TEST(Cadence, NoSmallPeriodIsMissed) {
  constexpr size_t kEnough[] = {8, 15, 11, 24, 20, 23, 13};  // for m = 2, 3, ..., found by counting
  for (uint64_t stretch = 1; stretch <= 256; stretch *= 2) {
    Cadence cadence(1, 3072);
    cadence.Stretch(stretch);
    for (int64_t from = 0; from < 64; ++from) {
      for (int64_t m = 2; m <= 8; ++m) {
        std::set<int64_t> met;
        for (const int64_t step :
             DueSteps(cadence, kEnough[m - 2], from * static_cast<int64_t>(stretch)))
          met.insert(step % m);
        EXPECT_EQ(met.size(), static_cast<size_t>(m)) << stretch << " from " << from;
      }
    }
  }
}

// ---- governor --------------------------------------------------------------------------------

constexpr uint64_t kSecond = 1'000'000'000;

TEST(Governor, StaysAtOneWithinTheBudget) {
  Governor governor(0.01);
  EXPECT_FALSE(governor.Look(5 * kSecond, 0));
  governor.Charge(kSecond / 400);
  EXPECT_FALSE(governor.Due(5 * kSecond + kSecond / 2));
  EXPECT_TRUE(governor.Due(6 * kSecond));
  EXPECT_FALSE(governor.Look(6 * kSecond, kSecond / 500));
  EXPECT_NEAR(governor.share(), 0.009, 1e-6) << "twice what was counted";
  EXPECT_EQ(governor.stretch(), 1u);
}

// A trainer whose cost depends on its number of due steps: the governor finds the smallest stretch
// that fits, keeps it, and reduces it when the cost falls.
TEST(Governor, FindsTheLeastStretchAndComesBack) {
  Governor governor(0.01);
  uint64_t now = kSecond, threads = 0;
  governor.Look(now, threads);
  const auto second = [&](double full_share) {
    const double paid = full_share / static_cast<double>(governor.stretch()) * 1e9;
    const double cost = paid / Governor::kPaidPerCounted;
    governor.Charge(static_cast<uint64_t>(cost / 2));
    threads += static_cast<uint64_t>(cost / 2);
    governor.Look(now += kSecond, threads);
  };
  second(0.07);
  EXPECT_EQ(governor.stretch(), 8u);
  for (int i = 0; i < 20; ++i) {
    second(0.07);
    EXPECT_EQ(governor.stretch(), 8u);
    EXPECT_LE(governor.share(), 0.01);
  }
  second(0.015);
  EXPECT_EQ(governor.stretch(), 4u);
  second(0.015);
  EXPECT_EQ(governor.stretch(), 2u);
  second(0.015);
  EXPECT_EQ(governor.stretch(), 2u) << "one would cost 1.5 %";
  second(0.001);
  EXPECT_EQ(governor.stretch(), 1u);
}

TEST(Governor, ABudgetOfOneGovernsNothing) {
  Governor governor(1);
  governor.Look(kSecond, 0);
  governor.Charge(50 * kSecond);
  EXPECT_FALSE(governor.Look(2 * kSecond, 0));
  EXPECT_EQ(governor.stretch(), 1u);
}

TEST(Governor, StretchIsBounded) {
  Governor governor(1e-9);
  governor.Look(kSecond, 0);
  for (uint64_t i = 2; i < 10; ++i) {
    governor.Charge(kSecond);
    governor.Look(i * kSecond, 0);
  }
  EXPECT_EQ(governor.stretch(), Governor::kMaxStretch);
}

TEST(CallCost, ClipsPreemptedCallsAtTenMedians) {
  CallCost cost;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) cost.Clip(900 + random() % 200);
  EXPECT_NEAR(static_cast<double>(cost.median_ns()), 1000, 100);
  EXPECT_LE(cost.Clip(5'000'000), 11'000u);
  EXPECT_EQ(cost.Clip(1000), 1000u);
  for (int i = 0; i < 5000; ++i) cost.Clip(20'000);  // the site's calls grew
  EXPECT_NEAR(static_cast<double>(cost.median_ns()), 20'000, 2000);
}

// ---- sites -----------------------------------------------------------------------------------

TEST(SiteTable, OneSiteAName) {
  SiteTable table;
  Site* a = table.FindOrAdd(SiteKind::kRouting, "layers.0", "routing", 3);
  EXPECT_EQ(a, table.FindOrAdd(SiteKind::kRouting, "layers.0", "routing", 9));
  EXPECT_EQ(a->declared_step, 3);
  EXPECT_NE(a, table.FindOrAdd(SiteKind::kRouting, "layers.1", "routing", 3));
  EXPECT_NE(table.FindOrAdd(SiteKind::kScalar, "", "x", 0),
            table.FindOrAdd(SiteKind::kSpan, "", "x", 0));
  EXPECT_EQ(table.size(), 4u);
  EXPECT_EQ(table.FindOrAdd(SiteKind::kScalar, "", std::string(513, 'x'), 0), nullptr);
}

TEST(SiteTable, FullTableRefusesNewNamesOnly) {
  auto table = std::make_unique<SiteTable>();
  for (size_t i = 0; i < SiteTable::kMaxSites; ++i) {
    ASSERT_NE(table->FindOrAdd(SiteKind::kScalar, "", std::to_string(i), 0), nullptr);
  }
  EXPECT_EQ(table->FindOrAdd(SiteKind::kScalar, "", "one more", 0), nullptr);
  EXPECT_NE(table->FindOrAdd(SiteKind::kScalar, "", "17", 0), nullptr);
}

TEST(SiteTable, ManyThreadsAgree) {
  SiteTable table;
  std::vector<std::thread> threads;
  std::array<std::array<Site*, 200>, 4> seen{};
  for (size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i) {
        seen[t][i] = table.FindOrAdd(SiteKind::kScalar, "", std::to_string(i), 0);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(table.size(), 200u);
  for (const auto& s : seen) EXPECT_EQ(s, seen[0]);
}

TEST(Site, CallsCountWithinAStep) {
  Site site;
  EXPECT_EQ(site.NextCall(0), 0u);
  EXPECT_EQ(site.NextCall(0), 1u);
  EXPECT_EQ(site.NextCall(7), 0u);
  EXPECT_EQ(site.NextCall(7), 1u);
  EXPECT_EQ(site.NextCall(7), 2u);
  EXPECT_EQ(site.NextCall(8), 0u);
}

TEST(Site, CallsOfOneStepAreDistinctAcrossThreads) {
  Site site;
  std::array<std::vector<uint32_t>, 4> calls;
  std::vector<std::thread> threads;
  for (auto& mine : calls) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) mine.push_back(site.NextCall(42));
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<uint32_t> all;
  for (const auto& mine : calls) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 20000u);
  EXPECT_EQ(*all.rbegin(), 19999u);
}

TEST(LossCounters, NothingTwiceNothingMissing) {
  LossCounters losses;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) losses.Add(LossCause::kRingFull, 100 + i % 50);
    });
  }
  uint64_t count = 0;
  int64_t first = 1000, last = 0;
  const auto take = [&] {
    const LossCounters::Taken t = losses.Take(LossCause::kRingFull);
    count += t.count;
    if (t.count == 0) return;
    EXPECT_LE(t.step_first, t.step_last);
    first = std::min(first, t.step_first);
    last = std::max(last, t.step_last);
  };
  for (int i = 0; i < 2000; ++i) take();
  for (std::thread& t : threads) t.join();
  take();
  EXPECT_EQ(count, 60000u);
  EXPECT_EQ(first, 100);
  EXPECT_EQ(last, 149);
  EXPECT_EQ(losses.Take(LossCause::kInvalid).count, 0u);
}

TEST(SpanTable, EachEndsOnce) {
  SpanTable table;
  OpenSpan span, back;
  span.step = 5;
  const uint64_t a = table.Begin(span);
  span.step = 6;
  const uint64_t b = table.Begin(span);
  ASSERT_GT(a, 0u);
  ASSERT_NE(a, b);
  ASSERT_TRUE(table.End(a, &back));
  EXPECT_EQ(back.step, 5);
  EXPECT_FALSE(table.End(a, &back));
  EXPECT_FALSE(table.End(0, &back));
  EXPECT_FALSE(table.End(~uint64_t{0}, &back));
  ASSERT_TRUE(table.End(b, &back));
  EXPECT_EQ(back.step, 6);
}

TEST(SpanTable, FullTableRefuses) {
  SpanTable table;
  std::set<uint64_t> numbers;
  for (size_t i = 0; i < SpanTable::kSlots; ++i) numbers.insert(table.Begin({}));
  EXPECT_EQ(numbers.size(), SpanTable::kSlots);
  EXPECT_EQ(numbers.count(0), 0u);
  EXPECT_EQ(table.Begin({}), 0u);
  OpenSpan back;
  ASSERT_TRUE(table.End(*numbers.begin(), &back));
  EXPECT_GT(table.Begin({}), 0u);
}

// ---- options ---------------------------------------------------------------------------------

TEST(Options, EnvironmentOverrides) {
  AgentOptions options;
  setenv("PLUMBLINE_TRAFFIC_BYTES", "12345", 1);
  setenv("PLUMBLINE_QUEUE_BYTES", "65536", 1);
  ASSERT_TRUE(ApplyEnvironment(&options).ok());
  EXPECT_EQ(options.traffic_bytes, 12345u);
  EXPECT_EQ(options.queue_bytes, 65536u);
  EXPECT_EQ(options.ring_bytes, 32u << 20);
  for (const char* bad : {"12x", "-1", "0", "99999999999999999999", " 5"}) {
    setenv("PLUMBLINE_TRAFFIC_BYTES", bad, 1);
    const absl::Status s = ApplyEnvironment(&options);
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << bad;
    EXPECT_THAT(std::string(s.message()), HasSubstr("PLUMBLINE_TRAFFIC_BYTES"));
  }
  unsetenv("PLUMBLINE_TRAFFIC_BYTES");
  unsetenv("PLUMBLINE_QUEUE_BYTES");
}

}  // namespace
}  // namespace plumbline::agent
