// Measures the required samples of the bias test, and its results for correct and incorrect
// arithmetic on simulated data. Prints the figures of docs/measurements/precision.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "analysis/statistics/bias_stream.h"
#include "tests/rules/support/simulated_sums.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CoherentAddends;
using rules::testing::ErrorOfSum;
using rules::testing::SequentialSum;
using Rng = std::mt19937_64;

// Median and 90th percentile of the number of samples until the alarm at 1e-6.
struct Needed {
  uint64_t median, most;
};
Needed SamplesToAlarm(const char* name, int runs, const std::function<double(Rng&)>& draw) {
  std::vector<uint64_t> needed;
  for (int run = 0; run < runs; ++run) {
    Rng rng(static_cast<uint64_t>(run) + 1);
    BiasStream stream(1e-6);
    while (!stream.alarmed()) {
      if (stream.count() > 50000) break;
      const double e = draw(rng);
      stream.Add({&e, 1}, std::nullopt);
    }
    needed.push_back(stream.alarmed() ? stream.alarm_sample() : 1000000);
  }
  std::sort(needed.begin(), needed.end());
  const Needed result{needed[needed.size() / 2], needed[needed.size() * 9 / 10]};
  std::printf("  %-40s median %5llu, nine of ten within %5llu\n", name,
              static_cast<unsigned long long>(result.median),
              static_cast<unsigned long long>(result.most));
  return result;
}

TEST(BiasPower, SamplesNeededAtOneInAMillion) {
  const auto normal = [](double mean, double sd) {
    return [=](Rng& rng) { return std::normal_distribution<double>(mean, sd)(rng); };
  };
  // The exact sum stored toward zero: one ulp below the nearest in half of the cases.
  const Needed zero = SamplesToAlarm("fp32 sum stored toward zero, bf16", 400, [](Rng& rng) {
    const auto x = CoherentAddends(8, 0.3, DType::kF32, rng);
    double s = 0;
    for (double v : x) s += v;
    return ErrorOfSum(RoundToFormat(s, DType::kBF16, RoundingMode::kTowardZero), x, DType::kBF16).e;
  });
  EXPECT_NEAR(static_cast<double>(zero.median), 76, 6);
  const Needed premultiplied = SamplesToAlarm("average by bf16(1/3)", 400, [](Rng& rng) {
    const auto x = CoherentAddends(3, 0.3, DType::kF32, rng);
    double s = 0;
    for (double v : x) s += v * RoundToFormat(1.0 / 3, DType::kBF16);
    return ErrorOfSum(RoundToFormat(s, DType::kBF16), x, DType::kBF16, 3).e;
  });
  EXPECT_NEAR(static_cast<double>(premultiplied.median), 109, 12);
  EXPECT_NEAR(static_cast<double>(SamplesToAlarm("mean -.2, sd .5", 200, normal(-.2, .5)).median),
              390, 40);
  EXPECT_NEAR(static_cast<double>(SamplesToAlarm("mean -.1, sd .5", 100, normal(-.1, .5)).median),
              3424, 400);
}

struct Measured {
  BiasStream stream{1e-6};
  double clipped = 0;   // mean of e clipped at 1 ulp
  double relative = 0;  // sum of y sign(s) / sum |s| - 1
};
Measured Measure(int samples, const std::function<std::vector<double>(Rng&)>& addends,
                 const std::function<double(const std::vector<double>&)>& sum, DType out,
                 uint64_t seed) {
  Rng rng(seed);
  Measured m;
  SumErrors errors;
  double got = 0;
  double exact = 0;
  for (int i = 0; i < samples; ++i) {
    const auto x = addends(rng);
    const double y = sum(x);
    ExactSum s;
    for (double v : x) s.Add(v);
    got += y * s.Sign();
    exact += std::fabs(s.Value());
    errors.Take(ErrorOfSum(y, x, out));
  }
  for (double e : errors.judged) m.clipped += std::clamp(e, -1.0, 1.0) / samples;
  m.relative = got / exact - 1;
  m.stream.Add(errors, std::nullopt);
  return m;
}

Measured Ring(DType t, size_t n, int samples, double spread = 0.3, bool one_mean = false) {
  return Measure(
      samples, [=](Rng& rng) { return CoherentAddends(n, spread, t, rng, one_mean); },
      [=](const std::vector<double>& x) { return SequentialSum(x, t); }, t, n);
}

void Print(const char* name, size_t n, const Measured& m) {
  std::printf(
      "  %-22s N = %4zu: mean %+8.4f ulp [%+.4f, %+.4f], clipped %+.4f, rms %.3f, %+.3f %%\n", name,
      n, m.stream.mean(), m.stream.low(), m.stream.high(), m.clipped, m.stream.rms(),
      100 * m.relative);
}

TEST(BiasPower, HonestSumsAreSilent) {
  for (size_t n = 3; n <= 8; ++n) {
    const Measured m = Ring(DType::kF16, n, 60000);
    Print("fp16 ring", n, m);
    EXPECT_FALSE(m.stream.alarmed()) << n;
    EXPECT_LT(std::fabs(m.stream.mean()), 0.002 + m.stream.half_width()) << n;
  }
  for (size_t n : {4u, 8u, 16u, 32u, 64u}) {
    const Measured m = Ring(DType::kBF16, n, 20000);
    Print("bf16 ring", n, m);
    EXPECT_EQ(m.stream.side(), BiasSide::kNone) << n;
    EXPECT_LT(std::fabs(m.stream.mean()), 0.016 + m.stream.half_width()) << n;
  }
  for (size_t n : {8u, 512u}) {
    const Measured m = Measure(
        3000, [=](Rng& rng) { return CoherentAddends(n, 0.3, DType::kBF16, rng); },
        [](const std::vector<double>& x) {
          return RoundToFormat(SequentialSum(x, DType::kF32), DType::kBF16);
        },
        DType::kBF16, n);
    Print("fp32 sum of bf16", n, m);
    EXPECT_FALSE(m.stream.alarmed());
    EXPECT_LT(std::fabs(m.stream.mean()), 0.003);
  }
}

// Tests a million steps of one element each: fp32 sums stored in 16 bits, fp32 sums of fp32, and an
// fp16 ring of four.
TEST(BiasPower, AMillionHealthySteps) {
  Rng rng(77);
  BiasStream stored(1e-6), full(1e-6), ring(1e-6);
  for (int step = 0; step < 1000000; ++step) {
    const auto x = CoherentAddends(4, 0.3, DType::kBF16, rng);
    const double sum = SequentialSum(x, DType::kF32);
    const double e = ErrorOfSum(RoundToFormat(sum, DType::kBF16), x, DType::kBF16).e;
    stored.Add({&e, 1}, 1000000);
    const double f = ErrorOfSum(sum, x, DType::kF32).e * BiasUnitScale(DType::kF32);
    full.Add({&f, 1}, 1000000);
    if (step % 4 != 0) continue;
    const auto h = CoherentAddends(4, 0.3, DType::kF16, rng);
    const double g = ErrorOfSum(SequentialSum(h, DType::kF16), h, DType::kF16).e;
    ring.Add({&g, 1}, 1000000);
  }
  for (const BiasStream* stream : {&stored, &full, &ring}) {
    EXPECT_FALSE(stream->alarmed());
    EXPECT_EQ(stream->side(), BiasSide::kNone);
    EXPECT_LT(std::fabs(stream->mean()), 0.006);
  }
}

TEST(BiasPower, LongRingsAreFound) {
  for (size_t n : {128u, 256u, 512u, 1024u}) {
    const Measured m = Ring(DType::kBF16, n, 4000);
    Print("bf16 ring", n, m);
    if (n >= 256) {
      EXPECT_NE(m.stream.side(), BiasSide::kNone) << n;
    }
    if (n >= 512) {
      EXPECT_EQ(m.stream.level(), v1::LEVEL_ERROR) << n;
    }
    if (n == 256) {
      EXPECT_NEAR(m.clipped, 0.67, 0.05);
      EXPECT_NEAR(m.stream.mean(), 4.9, 0.4);
    }
  }
  const Measured dithered = Ring(DType::kBF16, 512, 4000, 3);
  Print("bf16 ring, spread 3", 512, dithered);
  EXPECT_LT(std::fabs(dithered.relative), 0.02);
}

// Measures sequential sums into one accumulator: gradients of K micro-batches, with mean 1 for all
// elements or with different means. The loss depends on the mantissa.
TEST(BiasPower, GradientAccumulationInBf16) {
  for (size_t k : {16u, 64u, 128u, 256u, 512u, 1024u}) {
    const Measured one = Ring(DType::kBF16, k, 4000, 0.5, true);
    Print("bf16 accumulation, 1", k, one);
    Print("bf16 accumulation", k, Ring(DType::kBF16, k, 4000, 0.5));
    if (k == 512) {
      EXPECT_NEAR(one.relative, -0.014, 0.003);
    }
    if (k == 1024) {
      EXPECT_NEAR(one.relative, -0.45, 0.01);
    }
  }
}

}  // namespace
}  // namespace plumbline::analysis
