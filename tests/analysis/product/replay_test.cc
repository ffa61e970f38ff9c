// Tests the arithmetic that a product is attributed to: the simulated one and no other.
#include "analysis/product/replay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "analysis/product/candidates.h"
#include "base/exact_sum.h"
#include "tests/rules/support/simulated_matmul.h"

namespace plumbline::analysis {
namespace {

using rules::testing::MatmulSpec;
using rules::testing::Simulate;
using rules::testing::SimulatedMatmul;
using rules::testing::Values;
using Sum = MatmulModel::Sum;

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }
int Setting(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

MatmulReplay ReplayOf(const SimulatedMatmul& made) {
  const v1::Matmul evidence = made.Evidence();
  const auto c = DecodeMatmul(evidence);
  EXPECT_TRUE(c.ok()) << c.status();
  return ReplayMatmul(*c);
}

bool Contains(const std::vector<MatmulModel>& models, const MatmulModel& model) {
  return std::find(models.begin(), models.end(), model) != models.end();
}

// Checks that the claims of the replay are true of `model`.
void ExpectTrueOf(const MatmulReplay& replay, const MatmulModel& model, const std::string& where) {
  const auto narrow = [](const MatmulModel& m) { return KeepsFewerBits(m, 21); };
  const auto cut = [](const MatmulModel& m) { return m.cut != InputCut::kNone; };
  EXPECT_FALSE(replay.Proves(narrow) && !narrow(model)) << where;
  EXPECT_FALSE(replay.Proves(NarrowParts) && !NarrowParts(model)) << where;
  EXPECT_FALSE(replay.Proves(cut) && !cut(model)) << where;
}

const DType kInputs[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};

MatmulSpec RandomSpec(std::mt19937_64& rng) {
  MatmulSpec spec;
  const int samples[] = {1, 8, 30, 64, 200};
  const int inners[] = {1, 2, 3, 7, 16, 31, 64, 100, 128, 256, 500, 1000};
  spec.samples = samples[rng() % 5];
  spec.inner = inners[rng() % 12];
  spec.input = kInputs[rng() % 5];
  const DType outputs[] = {DType::kF32, DType::kF16, DType::kBF16};
  spec.output = outputs[rng() % 3];
  const Values values[] = {Values::kNormal,  Values::kNormal,     Values::kPositive,
                           Values::kSpread,  Values::kCancelling, Values::kSubnormal,
                           Values::kIntegers};
  spec.values = values[rng() % 7];
  spec.addend = rng() % 4 == 0;
  spec.seed = rng();
  return spec;
}

// Tests candidates of any shape: the true candidate is in the class, and no false claim is made.
TEST(MatmulReplay, EveryCandidateIsFoundAmongItsEquals) {
  std::mt19937_64 rng(21);
  std::map<std::string, std::map<std::string, int>> named;
  const int rounds = Long() ? 3000 : 30;
  for (int round = 0; round < rounds; ++round) {
    const MatmulSpec spec = RandomSpec(rng);
    SimulatedMatmul made = rules::testing::Factors(spec);
    made.d.assign(static_cast<size_t>(spec.samples), 0);
    const v1::Matmul blank = made.Evidence();
    const auto c = DecodeMatmul(blank);
    ASSERT_TRUE(c.ok()) << c.status();
    const std::vector<MatmulModel> models = CandidateModels(*c);
    // Families with equal weights, independent of their number of parameters.
    MatmulModel model = models[rng() % models.size()];
    const char* families[] = {"exact",    "sequential", "pairwise", "aligned",
                              "promoted", "split-k",    "tf32"};
    const std::string wanted = families[rng() % 7];
    for (int tries = 0; tries < 2000 && FamilyOf(model) != wanted; ++tries)
      model = models[rng() % models.size()];
    const MatmulReplay replay = ReplayOf(Simulate(spec, model));
    const std::string where = Words(model) + ", K " + std::to_string(spec.inner) + ", m " +
                              std::to_string(spec.samples) + ", " + DTypeName(spec.input) + " to " +
                              DTypeName(spec.output) + ", values " +
                              std::to_string(static_cast<int>(spec.values));
    ASSERT_TRUE(replay.explained())
        << where << "; best " << replay.best << " " << replay.matches << " of " << replay.samples;
    EXPECT_TRUE(Contains(replay.accepted, model)) << where;
    EXPECT_TRUE(!replay.proved || replay.families.count(FamilyOf(model)) == 1) << where;
    ExpectTrueOf(replay, model, where);
    ++named[FamilyOf(model)][(replay.proved ? "proved " : "class ") + replay.name];
  }
  for (const auto& [family, names] : named) {
    std::cout << family << ":";
    for (const auto& [name, count] : names) std::cout << " " << name << "=" << count;
    std::cout << "\n";
  }
}

// Tests named arithmetics at a size that must identify them.
TEST(MatmulReplay, NamesWhatTensorCoresDo) {
  const MatmulSpec spec{.samples = 64, .inner = 512};
  const MatmulModel hopper{.sum = Sum::kAligned,
                           .rounding = RoundingMode::kTowardZero,
                           .fraction_bits = 25,
                           .block = 16};
  MatmulReplay replay = ReplayOf(Simulate(spec, hopper));
  EXPECT_EQ(replay.name, "aligned");
  EXPECT_TRUE(replay.proved);
  EXPECT_EQ(replay.shared["fraction_bits"], "25");
  EXPECT_EQ(replay.shared["block"], "16");

  MatmulSpec fp8{.samples = 64, .inner = 2048, .input = DType::kE4M3};
  const MatmulModel short_sum{.sum = Sum::kAligned,
                              .rounding = RoundingMode::kTowardZero,
                              .fraction_bits = 13,
                              .block = 32};
  replay = ReplayOf(Simulate(fp8, short_sum));
  EXPECT_EQ(replay.shared["fraction_bits"], "13");
  EXPECT_TRUE(replay.Proves([](const MatmulModel& m) { return KeepsFewerBits(m, 21); }));
  MatmulModel promoted = short_sum;
  promoted.promote = 128;
  replay = ReplayOf(Simulate(fp8, promoted));
  EXPECT_EQ(replay.name, "promoted");
  EXPECT_EQ(replay.shared["promote"], "128");

  MatmulSpec half{.samples = 256, .inner = 1024, .input = DType::kF16, .output = DType::kF16};
  const MatmulModel split{.sum = Sum::kAligned,
                          .rounding = RoundingMode::kTowardZero,
                          .fraction_bits = 24,
                          .block = 8,
                          .part = 256,
                          .part_dtype = DType::kF16};
  replay = ReplayOf(Simulate(half, split));
  EXPECT_TRUE(replay.Holds(NarrowParts)) << replay.Words();
  EXPECT_TRUE(replay.Proves(NarrowParts)) << replay.Words() << ", " << replay.discriminating;

  MatmulSpec single{.samples = 64, .inner = 256, .input = DType::kF32};
  const MatmulModel tf32{.cut = InputCut::kTf32Away,
                         .sum = Sum::kAligned,
                         .rounding = RoundingMode::kTowardZero,
                         .fraction_bits = 24,
                         .block = 4};
  replay = ReplayOf(Simulate(single, tf32));
  EXPECT_EQ(replay.name, "tf32");
  EXPECT_EQ(replay.shared["inputs"], "tf32-nearest-away");
  EXPECT_TRUE(replay.Proves([](const MatmulModel& m) { return m.cut != InputCut::kNone; }));
}

// ---- arithmetics that are not in the list ----

// Compensated twice (Klein 2006): equivalent to exact, and named so.
double Klein(const std::vector<double>& p, double c) {
  auto sum = static_cast<float>(c), first = 0.0f, second = 0.0f;
  const auto lost = [](float a, float b, float total) {
    return std::abs(a) >= std::abs(b) ? (a - total) + b : (b - total) + a;
  };
  for (const double product : p) {
    const auto x = static_cast<float>(product);
    const float next = sum + x, low = lost(sum, x, next), carried = first + low;
    second += lost(first, low, carried);
    first = carried;
    sum = next;
  }
  return sum + (first + second);
}

double Thirds(const std::vector<double>& p, size_t lo, size_t hi) {
  if (hi - lo == 0) return 0;
  if (hi - lo == 1) return static_cast<float>(p[lo]);
  const size_t third = (hi - lo + 2) / 3;
  const size_t a = std::min(lo + third, hi), b = std::min(a + third, hi);
  return static_cast<float>(Thirds(p, lo, a)) +
         (static_cast<float>(Thirds(p, a, b)) + static_cast<float>(Thirds(p, b, hi)));
}

double Lanes(const std::vector<double>& p, double c, size_t lanes) {
  std::vector<float> acc(lanes, 0);
  for (size_t k = 0; k < p.size(); ++k) acc[k % lanes] += static_cast<float>(p[k]);
  float sum = acc[0];
  for (size_t i = 1; i < lanes; ++i) sum += acc[i];
  return static_cast<float>(c) + sum;
}

double Stochastic(const std::vector<double>& p, double c, std::mt19937_64& rng) {
  double acc = c;
  for (const double x : p) {
    const double exact = acc + x, down = RoundToFormat(exact, DType::kF32, RoundingMode::kDown);
    const double up = RoundToFormat(exact, DType::kF32, RoundingMode::kUp);
    const double share = up > down ? (exact - down) / (up - down) : 0;
    acc = std::uniform_real_distribution<double>()(rng) < share ? up : down;
  }
  return acc;
}

double Backwards(const std::vector<double>& p, double c) {
  auto acc = static_cast<float>(c);
  for (size_t k = p.size(); k-- > 0;) acc += static_cast<float>(p[k]);
  return acc;
}

// Tests that none of these is named with proof and no claim is proved; ties on easy data are
// classes.
TEST(MatmulReplay, WhatIsNotListedIsNeverProved) {
  const auto seed = static_cast<uint64_t>(Setting("PLUMB_SEED", 31));
  std::mt19937_64 rng(seed), noise(seed + 1);
  struct Unlisted {
    const char* name;
    rules::testing::DotFunction dot;
  };
  const Unlisted unlisted[] = {
      {"klein", Klein},
      {"thirds", [](const auto& p, double c) { return c + Thirds(p, 0, p.size()); }},
      {"3 lanes", [](const auto& p, double c) { return Lanes(p, c, 3); }},
      {"8 lanes", [](const auto& p, double c) { return Lanes(p, c, 8); }},
      {"stochastic", [&](const auto& p, double c) { return Stochastic(p, c, noise); }},
      {"backwards", Backwards},
  };
  std::map<std::string, std::map<std::string, int>> outcomes;
  const int rounds = Setting("PLUMB_ROUNDS", Long() ? 2520 : 10);
  int cases = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const Unlisted& u : unlisted) {
      const MatmulSpec spec = RandomSpec(rng);
      // If there are only one or two products, all orders are equal.
      if (spec.inner < 16) continue;
      const MatmulReplay replay = ReplayOf(Simulate(spec, u.dot));
      ++cases;
      ++outcomes[u.name][!replay.explained() ? "unexplained" : replay.proved ? "PROVED" : "class"];
      // The second compensation may be rounded away on every sample.
      const bool as_good = std::string(u.name) == "klein" && replay.Holds([](const MatmulModel& m) {
        return m.sum == Sum::kExact || m.compensation != MatmulModel::Compensation::kNone;
      });
      EXPECT_FALSE(replay.proved && !as_good)
          << u.name << " as " << replay.Words() << ", K " << spec.inner << ", m " << spec.samples
          << ", " << DTypeName(spec.input) << " to " << DTypeName(spec.output) << ", values "
          << static_cast<int>(spec.values);
      EXPECT_FALSE(replay.Proves([](const MatmulModel& m) { return KeepsFewerBits(m, 21); }))
          << u.name;
      EXPECT_FALSE(replay.Proves(NarrowParts)) << u.name;
      EXPECT_FALSE(replay.Proves([](const MatmulModel& m) { return m.cut != InputCut::kNone; }))
          << u.name;
    }
  }
  std::cout << cases << " cases\n";
  for (const auto& [name, counts] : outcomes) {
    std::cout << name << ":";
    for (const auto& [outcome, count] : counts) std::cout << " " << outcome << "=" << count;
    std::cout << "\n";
  }
}

TEST(MatmulReplay, PoisonIsSetAside) {
  SimulatedMatmul made = Simulate({.samples = 40, .inner = 64}, MatmulModel{});
  made.a[5] = std::nan("");
  made.b[64 * 3 + 1] = INFINITY;
  const MatmulReplay replay = ReplayOf(made);
  EXPECT_EQ(replay.aside, 2);
  EXPECT_EQ(replay.samples, 38);
  EXPECT_TRUE(Contains(replay.accepted, MatmulModel{}));
  made.a.assign(made.a.size(), std::nan(""));
  const MatmulReplay none = ReplayOf(made);
  EXPECT_FALSE(none.explained());
  EXPECT_EQ(none.samples, 0);
}

TEST(MatmulReplay, SumsThatOverflowAreReplayedToo) {
  MatmulSpec spec{.samples = 60, .inner = 128, .input = DType::kF16, .output = DType::kF16};
  SimulatedMatmul made = rules::testing::Factors(spec);
  for (double& x : made.a) x = RoundToFormat(x * 60, DType::kF16);
  for (double& x : made.b) x = RoundToFormat(std::abs(x) * 60, DType::kF16);
  const MatmulModel narrow{.sum = Sum::kSequential, .accumulator = DType::kF16, .fused = true};
  int infinite = 0;
  for (int i = 0; i < spec.samples; ++i) {
    made.d.push_back(rules::testing::ReferenceSum(narrow, made.RowA(i), made.RowB(i), spec.inner,
                                                  spec.input, 0));
    infinite += !std::isfinite(made.d.back());
  }
  EXPECT_GT(infinite, 2);
  const MatmulReplay replay = ReplayOf(made);
  EXPECT_TRUE(Contains(replay.accepted, narrow));
  EXPECT_TRUE(replay.Proves([](const MatmulModel& m) { return KeepsFewerBits(m, 21); }));
}

TEST(MatmulReplay, OneProductTiesAllThatRoundAlike) {
  const MatmulReplay replay = ReplayOf(Simulate({.samples = 64, .inner = 1}, MatmulModel{}));
  EXPECT_EQ(replay.name, "exact");
  EXPECT_GT(replay.families.size(), 1u);
  EXPECT_FALSE(replay.proved);
}

// Tests one of each family at K = 16,384.
TEST(MatmulReplay, LongSumsAreFound) {
  constexpr RoundingMode kZero = RoundingMode::kTowardZero;
  const MatmulModel models[] = {
      {.sum = Sum::kExact},
      {.sum = Sum::kSequential},
      {.sum = Sum::kSequential, .rounding = kZero},
      {.sum = Sum::kPairwise, .leaf = 128},
      {.sum = Sum::kAligned, .rounding = kZero, .fraction_bits = 25, .block = 16},
      {.sum = Sum::kAligned, .rounding = kZero, .fraction_bits = 13, .block = 32, .promote = 128},
      {.sum = Sum::kSequential, .promote = 2048},
  };
  for (const MatmulModel& model : models) {
    const MatmulSpec spec{.samples = 64, .inner = 16384};
    const MatmulReplay replay = ReplayOf(Simulate(spec, model));
    EXPECT_TRUE(Contains(replay.accepted, model)) << Words(model) << " as " << replay.Words();
    EXPECT_EQ(replay.name, FamilyOf(model)) << Words(model);
    // Compensated sums are so close to the exact sum that a sample or two may be missing.
    EXPECT_TRUE(replay.proved || model.sum == Sum::kExact)
        << Words(model) << ", " << replay.discriminating;
  }
}

TEST(MatmulReplay, ALargeSampleTakesSeconds) {
  for (const DType output : {DType::kF32, DType::kF16, DType::kBF16}) {
    const MatmulSpec spec{.samples = Long() ? 1024 : 64, .inner = 4096, .output = output};
    const MatmulModel model{.sum = Sum::kAligned,
                            .rounding = RoundingMode::kTowardZero,
                            .fraction_bits = 25,
                            .block = 16};
    const SimulatedMatmul made = Simulate(spec, model);
    const auto from = std::chrono::steady_clock::now();
    const MatmulReplay replay = ReplayOf(made);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
    std::cout << DTypeName(output) << ": " << spec.samples << " samples of 4,096, "
              << replay.candidates << " candidates, " << took.count() << " s; " << replay.Words()
              << ", accepted " << replay.accepted.size() << ", left " << replay.left << "\n";
    EXPECT_TRUE(Contains(replay.accepted, model));
  }
}

}  // namespace
}  // namespace plumbline::analysis
