// Tests whether capacities that follow the tokens are distinguished from schedules, draws and
// sources, on simulated loads. 20,000 runs of each kind if PLUMB_LONG=1, otherwise 200.
#include "analysis/routing/capacity_follows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace plumbline::analysis {
namespace {

constexpr double kNeeded = 24;

// A run: loads of calls of one size, and what an innocent capacity may depend on.
class SimulatedRun {
 public:
  explicit SimulatedRun(uint64_t seed) : random_(seed) {
    experts_ = std::vector{8, 16, 64}[random_() % 3];
    tokens_ = std::vector{512, 2048, 8192}[random_() % 3];
    popular_.resize(static_cast<size_t>(experts_));
    for (double& x : popular_) x = 0.3 * Normal();
  }
  double Normal() { return std::normal_distribution<double>()(random_); }
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }
  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  double even() const { return static_cast<double>(tokens_) / experts_; }

  // Returns ascending loads. `skew` scales the differences between the experts.
  std::vector<int64_t> Loads(double skew) {
    std::vector<double> weight;
    for (const double x : popular_) weight.push_back(std::exp(skew * (x + 0.2 * Normal())));
    double sum = 0;
    for (const double w : weight) sum += w;
    std::vector<int64_t> out;
    for (const double w : weight) {
      const double mean = tokens_ * w / sum;
      out.push_back(std::max<int64_t>(0, std::llround(mean + std::sqrt(mean) * Normal())));
    }
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::mt19937_64 random_;
  int experts_, tokens_;
  std::vector<double> popular_;
};

struct Step {
  double factor, skew;  // capacity / even, and of the loads
};
// Returns the steps of a run. They are known before the tokens.
using Plan = std::function<std::vector<Step>(SimulatedRun&, int calls)>;

std::vector<Step> Each(int calls, const std::function<Step(int)>& step) {
  std::vector<Step> out;
  for (int i = 0; i < calls; ++i) out.push_back(step(i));
  return out;
}

double BitsOf(uint64_t seed, const Plan& plan) {
  SimulatedRun run(seed);
  const int calls = 8 + static_cast<int>(run.Pick(57));
  std::vector<CapacityCall> shown;
  double most = 0;
  for (const Step& step : plan(run, calls)) {
    CapacityCall call{static_cast<int64_t>(std::ceil(step.factor * run.even())),
                      run.Loads(step.skew)};
    if (!ShowsCapacity(call.offered, call.capacity)) continue;
    shown.push_back(call);
    most = std::max(most, FindCapacityFollows(shown).bits);
  }
  return most;
}

uint64_t Runs() { return std::getenv("PLUMB_LONG") != nullptr ? 20'000 : 200; }

TEST(CapacityFollows, NoScheduleDrawOrSourceIsAccused) {
  const std::pair<const char*, Plan> plans[] = {
      {"drawn",
       [](SimulatedRun& r, int n) {
         return Each(n, [&](int) { return Step{0.8 + 0.4 * r.Uniform(), 1}; });
       }},
      {"drawn widely, so that only small ones refuse",
       [](SimulatedRun& r, int n) {
         return Each(n, [&](int) { return Step{0.5 + 2 * r.Uniform(), 1}; });
       }},
      {"warm-up, while the loads lose their balance",
       [](SimulatedRun& r, int n) {
         const double noise = 0.1 * r.Uniform();
         return Each(n, [&, n](int i) {
           return Step{0.7 + 0.5 * i / n + noise * r.Normal(), 0.5 + 1.5 * i / n};
         });
       }},
      {"falling, while the loads find their balance",
       [](SimulatedRun& r, int n) {
         const double noise = 0.1 * r.Uniform();
         return Each(n, [&, n](int i) {
           return Step{1.2 - 0.5 * i / n + noise * r.Normal(), 2 - 1.5 * i / n};
         });
       }},
      {"both walk",
       [](SimulatedRun& r, int n) {
         double factor = 1, skew = 1;
         return Each(n, [&](int) {
           factor = std::clamp(factor + 0.03 * r.Normal(), 0.5, 1.5);
           skew = std::clamp(skew + 0.2 * r.Normal(), 0.3, 3.0);
           return Step{factor, skew};
         });
       }},
      {"a wave of both",
       [](SimulatedRun& r, int n) {
         const double period = 3 + 10 * r.Uniform();
         return Each(n, [=](int i) {
           return Step{1 + 0.2 * std::sin(6.28 * i / period),
                       1 + 0.7 * std::sin(6.28 * i / period)};
         });
       }},
      {"few factors, one after the other",
       [](SimulatedRun&, int n) {
         return Each(n, [n](int i) {
           return Step{0.8 + 0.1 * (4 * i / n), 1.5 - 0.2 * (4 * i / n)};
         });
       }},
      {"few factors, drawn",
       [](SimulatedRun& r, int n) {
         return Each(n, [&](int) {
           return Step{0.75 + 0.125 * static_cast<double>(r.Pick(4)), 1};
         });
       }},
      {"sources with a capacity each, the larger for the more uneven loads",
       [](SimulatedRun& r, int n) {
         const int64_t sources = 2 + r.Pick(6);
         return Each(n, [&, sources](int) {
           const auto source = static_cast<double>(r.Pick(sources));
           return Step{0.7 + 0.05 * source, 0.5 + 0.4 * source};
         });
       }},
      {"turns of sources with a capacity each",
       [](SimulatedRun& r, int n) {
         const int sources = 2 + static_cast<int>(r.Pick(12));
         return Each(n, [=](int i) {
           return Step{0.7 + 0.02 * (i % sources), 0.5 + 0.3 * (i % sources)};
         });
       }},
  };
  for (const auto& [name, plan] : plans) {
    uint64_t accused = 0;
    double most = 0;
    for (uint64_t seed = 1; seed <= Runs(); ++seed) {
      const double bits = BitsOf(seed, plan);
      accused += bits >= kNeeded;
      most = std::max(most, bits);
    }
    std::cout << name << ": " << accused << " accused, most " << most << " bits\n";
    EXPECT_EQ(accused, 0u) << name;
  }
}

TEST(CapacityFollows, CapacitiesOfTheTokensAreFound) {
  using Rule = std::function<double(const std::vector<int64_t>&)>;
  struct Kind {
    const char* name;
    Rule rule;
    double least;  // share that is found; calls with few tokens have few different capacities
  };
  const Kind kinds[] = {
      {"share of the largest load",
       [](const auto& load) { return 0.8 * static_cast<double>(load.back()); }, 0.5},
      {"second largest load",
       [](const auto& load) { return static_cast<double>(load[load.size() - 2]) - 9; }, 0.2},
      {"the load that nine of ten experts do not exceed",
       [](const auto& load) { return 0.9 * static_cast<double>(load[load.size() * 9 / 10]); },
       0.25},
  };
  for (const auto& [name, rule, least] : kinds) {
    uint64_t found = 0, few = 0;
    const uint64_t runs = std::min<uint64_t>(Runs(), 2000);
    for (uint64_t seed = 1; seed <= runs; ++seed) {
      SimulatedRun run(seed);
      std::vector<CapacityCall> shown;
      double first = 0;
      for (int i = 0; i < 64; ++i) {
        CapacityCall call{0, run.Loads(1)};
        call.capacity = static_cast<int64_t>(std::ceil(rule(call.offered)));
        if (ShowsCapacity(call.offered, call.capacity)) shown.push_back(call);
        if (i < 16) first = FindCapacityFollows(shown).bits;
      }
      found += FindCapacityFollows(shown).bits >= kNeeded;
      few += first >= kNeeded;
    }
    std::cout << name << ": " << found << " found after 64 calls, " << few << " after 16, of "
              << runs << "\n";
    EXPECT_GE(static_cast<double>(found), least * static_cast<double>(runs)) << name;
  }
}

TEST(CapacityFollows, NeedsEveryCall) {
  SimulatedRun run(7);
  std::vector<CapacityCall> calls;
  for (int i = 0; i < 64; ++i) {
    CapacityCall call{.capacity = 0, .offered = run.Loads(1)};
    call.capacity = static_cast<int64_t>(0.8 * static_cast<double>(call.offered.back()));
    calls.push_back(call);
  }
  EXPECT_GT(FindCapacityFollows(calls).bits, 8);
  std::swap(calls[3].capacity, calls[4].capacity);
  EXPECT_EQ(FindCapacityFollows(calls).bits, 0);
  EXPECT_EQ(FindCapacityFollows({}).bits, 0);
  EXPECT_EQ(FindCapacityFollows({calls[0]}).bits, 0);
}

}  // namespace
}  // namespace plumbline::analysis
