// Measures simulated ledgers with known truth: the coverage of the intervals and the false finding
// rate. If PLUMB_LONG=1, ten times as many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "calculators/ledger/ledger.h"

namespace plumbline::ledger {
namespace {

int Ledgers() { return std::getenv("PLUMB_LONG") != nullptr ? 3000 : 300; }

struct Plan {
  int tried = 9;
  double keep_above = 0.05;  // ln multiplier as measured
  double spread = 0.06, mean = 0.04;
  double noise = 0.002, other_noise = 0.0012;
  double small_bias = 0;  // of ln loss, for all small ablations
  double leak = 0;        // of ln loss, for the first change, on the first set only
  int listed_too = 0;     // of the rejected changes
  std::vector<double> scales = {1e19, 1e20};
  int seeds = 2;
};

// The work of one laboratory: changes with a known value, ablations, and the kept changes.
class Laboratory {
 public:
  Laboratory(uint64_t seed, const Plan& plan) : plan_(plan), random_(seed) { Run(); }

  Ledger ledger;
  double truth = 0;  // ln of the product of the kept changes, at the target
  double naive = 0;  // ln of the product of the measured values
  double naive_variance = 0;

 private:
  double Normal() { return normal_(random_); }
  double Loss(double flops, double ln_worth) const {
    return 1.8 + std::pow(flops * std::exp(ln_worth) / 3e23, -0.16) * 0.35;
  }

  size_t Add(double flops, int64_t seed, double ln_loss, double ln_other) {
    ledger.runs.push_back({"", flops, seed, std::exp(ln_loss), std::exp(ln_other)});
    return ledger.runs.size() - 1;
  }

  size_t Train(double flops, int64_t seed, double ln_worth, double bias, double leak) {
    const double ln = std::log(Loss(flops, ln_worth)) + plan_.noise * Normal() - bias;
    return Add(flops, seed, ln - leak, ln + 0.03 + plan_.other_noise * Normal());
  }

  void Run() {
    ledger.target = 5e20;
    for (const double flops : {1e18, 1e19, 1e20, 1e21}) {
      for (int seed = 0; seed < (flops == 1e19 || flops == 1e20 ? plan_.seeds : 1); ++seed)
        ledger.baseline.push_back(Train(flops, seed, 0, 0, 0));
    }
    const double large = 0.0005 * Normal(), shared = 0.005 * Normal();
    std::vector<double> small;
    for (size_t i = 0; i < plan_.scales.size(); ++i)
      small.push_back(0.001 * Normal() + plan_.small_bias);
    for (int i = 0; i < plan_.tried; ++i) Change(i, large, shared, small);
    ledger.tried = plan_.tried;
  }

  // The value drifts with scale, per change and jointly.
  void Change(int i, double large, double shared, const std::vector<double>& small) {
    const double worth = plan_.mean + plan_.spread * Normal(), drift = 0.02 * Normal();
    Multiplier m{"c" + std::to_string(i), 1, true, {{}, ledger.baseline}};
    for (size_t k = 0; k < plan_.scales.size(); ++k) {
      const double flops = plan_.scales[k];
      const double decades = std::log10(flops / plan_.scales.back());
      const double bias = k + 1 == plan_.scales.size() ? large : small[k];
      for (int seed = 0; seed < plan_.seeds; ++seed)
        m.arms.with.push_back(
            Train(flops, seed, worth + drift * decades, bias, i == 0 ? plan_.leak : 0));
    }
    const std::vector<Cell> cells = CellsOf(ledger.runs, m.arms);
    // As in practice: the claim uses the true slope at the largest scale.
    const double with = std::exp(cells.back().ln_with), without = std::exp(cells.back().ln_without);
    const double measured = std::log((without - 1.8) / (with - 1.8)) / 0.16;
    m.claimed = std::exp(measured);
    m.kept = measured > plan_.keep_above;
    if (!m.kept && plan_.listed_too-- <= 0) return;
    ledger.multipliers.push_back(m);
    if (!m.kept) return;
    const double to_target = std::log10(ledger.target / plan_.scales.back());
    truth += worth + (drift + shared) * to_target;
    naive += measured;
    const double gain = 1 / (0.16 * (1 - 1.8 / without));
    naive_variance += 2 * gain * gain * plan_.noise * plan_.noise / plan_.seeds;
  }

  Plan plan_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

struct Rates {
  double ours = 0, naive = 0, leaks = 0, first_leak = 0, biased = 0;
  int judged = 0;
};

bool Holds(double ln, double variance, double truth) {
  return std::fabs(ln - truth) <= kNinety * std::sqrt(variance);
}

Rates Simulate(const Plan& plan, uint64_t first_seed) {
  Rates rates;
  for (int i = 0; i < Ledgers(); ++i) {
    const Laboratory lab(first_seed + static_cast<uint64_t>(i), plan);
    if (lab.ledger.multipliers.empty()) continue;
    const auto e = EstimateLedger(lab.ledger, {});
    EXPECT_TRUE(e.ok()) << e.status();
    ++rates.judged;
    rates.ours += Holds(e->product.ln, e->product.all_variance, lab.truth) ? 1 : 0;
    rates.naive += Holds(lab.naive, lab.naive_variance, lab.truth) ? 1 : 0;
    const Leaks leaks = FindLeaks(lab.ledger, *e, {});
    bool any = false;
    for (const Leak& leak : leaks.of) any |= leak.found;
    rates.leaks += any ? 1 : 0;
    rates.first_leak += leaks.of[0].found ? 1 : 0;
    rates.biased += FindScaleBias(*e, {}).found() ? 1 : 0;
  }
  for (double* rate : {&rates.ours, &rates.naive, &rates.leaks, &rates.first_leak, &rates.biased})
    *rate /= rates.judged;
  return rates;
}

// Returns three standard deviations of a fraction of n.
double Wide(double share, int n) { return 3 * std::sqrt(share * (1 - share) / n); }

void Report(const char* name, const Rates& r) {
  std::printf("%-12s %d ledgers: ours %.3f naive %.3f leaks %.4f first %.3f bias %.4f\n", name,
              r.judged, r.ours, r.naive, r.leaks, r.first_leak, r.biased);
}

TEST(Simulated, IntervalsHoldTheTruth) {
  const struct {
    const char* name;
    Plan plan;
  } plans[] = {{"nine", {}},
               {"thirty", {.tried = 30}},
               {"weak", {.tried = 20, .keep_above = 0.02, .spread = 0.03, .mean = 0.0}},
               {"one scale", {.scales = {1e20}}},
               {"noisy", {.noise = 0.004}},
               {"also listed", {.tried = 12, .listed_too = 4}}};
  uint64_t seed = 1000;
  for (const auto& [name, plan] : plans) {
    const Rates rates = Simulate(plan, seed += 100000);
    Report(name, rates);
    // 3,000 of each: 0.86 (noisy) to 0.93.
    EXPECT_GE(rates.ours, 0.86 - Wide(0.86, rates.judged)) << name;
    EXPECT_LE(rates.naive, 0.80) << name << ": a test that a naive product passes has no power";
    // One false finding per hundred ledgers each.
    EXPECT_LE(rates.leaks, 0.01 + Wide(0.01, rates.judged)) << name;
    EXPECT_LE(rates.biased, 0.01 + Wide(0.01, rates.judged)) << name;
  }
}

TEST(Simulated, ALeakIsFound) {
  const Rates rates = Simulate({.keep_above = -1, .leak = 0.006}, 77);
  Report("leak", rates);
  EXPECT_GE(rates.first_leak, 0.9);
}

// Tests a 2 % loss advantage of all small ablations.
TEST(Simulated, ABiasOfSmallScalesIsFound) {
  const Rates rates = Simulate({.keep_above = -1, .small_bias = 0.02}, 78);
  Report("bias", rates);
  EXPECT_GE(rates.biased, 0.9);
}

// Tests correct claims: the stack must not be reported as overstated.
TEST(Simulated, AnHonestStackIsNotOverstated) {
  int overstated = 0, judged = 0;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 2 * Ledgers(); ++i) {
    Laboratory lab(900000 + static_cast<uint64_t>(i), {});
    if (lab.ledger.multipliers.empty()) continue;
    double claimed = 0;
    for (Multiplier& m : lab.ledger.multipliers) {
      m.claimed = 1.05;
      claimed += std::log(m.claimed);
    }
    Stack& stack = lab.ledger.stack.emplace();
    stack.arms.without = lab.ledger.baseline;
    const double bias = 0.0005 * normal(random);
    for (int seed = 0; seed < 2; ++seed) {
      const double loss = 1.8 + std::pow(1e20 * std::exp(claimed) / 3e23, -0.16) * 0.35;
      lab.ledger.runs.push_back(
          {"", 1e20, seed, loss * std::exp(0.002 * normal(random) + bias), {}});
      stack.arms.with.push_back(lab.ledger.runs.size() - 1);
    }
    const auto e = EstimateLedger(lab.ledger, {});
    ASSERT_TRUE(e.ok());
    ++judged;
    overstated += e->stack->overstated() >= kOverstated ? 1 : 0;
  }
  const double rate = static_cast<double>(overstated) / judged;
  std::printf("honest stacks: %d, overstated %.4f\n", judged, rate);
  EXPECT_LE(rate, 0.01 + Wide(0.01, judged));
}

}  // namespace
}  // namespace plumbline::ledger
