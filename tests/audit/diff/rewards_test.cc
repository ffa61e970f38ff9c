// plumb diff on logs of reinforcement learning: the rewards are compared at their ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/audit/plumb_process.h"
#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

struct Rewarded {
  uint64_t seed = 0;
  int steps = 60;
  double first = 0.1, last = 0.8;  // the reward rises from one to the other
  double end = NAN;                // if finite: the reward of the last third
};

class DiffRewards : public ::testing::Test {
 protected:
  // A policy's loss may be negative, so it is not compared.
  std::string Write(const std::string& name, const Rewarded& r) {
    std::mt19937_64 random(r.seed);
    std::normal_distribution<double> normal;
    std::string text = "step,actor/pg_loss,critic/rewards/mean\n";
    for (int step = 0; step < r.steps; ++step) {
      const double at = static_cast<double>(step) / r.steps;
      double reward = r.first + (r.last - r.first) * at;
      if (std::isfinite(r.end) && 3 * step >= 2 * r.steps) reward = r.end;
      text += std::to_string(step) + "," + std::to_string(1e-3 * normal(random)) + "," +
              std::to_string(reward + 0.01 * normal(random)) + "\n";
    }
    return dir_.Write(name, text);
  }

  static int Gate(const std::string& a, const std::string& b, const std::string& margin = "5%") {
    return RunPlumb({"diff", a, b, "--fail-on", "error", "--margin", margin}).status;
  }

  test::TempFolder dir_;
};

TEST_F(DiffRewards, EndsThatDifferAreStatedAndFailTheGate) {
  const std::string a = Write("a.csv", {}), b = Write("b.csv", {.seed = 1, .last = 0.5});
  const std::string output = RunPlumb({"diff", a, b}).output;
  EXPECT_THAT(output.substr(0, output.find("\n\n")),
              HasSubstr("rewards end apart: critic/rewards/mean (B 0."));
  EXPECT_EQ(Gate(a, b), 1);
  EXPECT_EQ(Gate(a, b, "60%"), 0);
  EXPECT_EQ(Gate(b, a), 0) << "a higher reward is no fault";
  const Json json = Json::parse(RunPlumb({"diff", a, b, "--format", "json"}).output);
  ASSERT_EQ(json["rewards"].size(), 1u);
  EXPECT_EQ(json["rewards"][0]["points"], 8);
  EXPECT_EQ(json["rewards"][0]["apart"], true);
}

TEST_F(DiffRewards, SignsAndZerosNeedNoLogarithm) {
  const std::string a = Write("a.csv", {.first = -0.9, .last = -0.2});
  const std::string b = Write("b.csv", {.seed = 1, .first = -0.9, .last = -0.8});
  const std::string zero = Write("zero.csv", {.seed = 2, .first = -0.9, .last = -0.2, .end = 0});
  EXPECT_EQ(Gate(a, b), 1);
  EXPECT_EQ(Gate(a, zero), 0);
  EXPECT_EQ(Gate(zero, b), 1);
}

// A policy's loss around zero fails no gate, whatever the few values are that have a logarithm.
TEST_F(DiffRewards, LossesAroundZeroFailNoGate) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto table = [&](uint64_t s) {
      std::mt19937_64 random(s);
      std::normal_distribution<double> normal;
      std::string text = "step,loss\n";
      for (int step = 0; step < 20; ++step)
        text += std::to_string(step) + "," + std::to_string(0.01 * normal(random)) + "\n";
      return dir_.Write(s % 2 == 0 ? "a.csv" : "b.csv", text);
    };
    EXPECT_EQ(Gate(table(2 * seed), table(2 * seed + 1)), 0) << seed;
  }
}

// Seeds whose noise overlaps, and runs of fewer than eight steps, are not called apart.
TEST_F(DiffRewards, OverlappingEndsAreAlike) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string a = Write("a.csv", {.seed = 2 * seed, .end = 0.7});
    const std::string b = Write("b.csv", {.seed = 2 * seed + 1, .end = 0.7});
    const Ended ended = RunPlumb({"diff", a, b, "--fail-on", "error", "--margin", "0%"});
    EXPECT_EQ(ended.status, 0) << ended.errors;
    EXPECT_THAT(ended.output, HasSubstr("no reward ends apart"));
  }
  const std::string a = Write("a.csv", {.steps = 7});
  const std::string b = Write("b.csv", {.seed = 1, .steps = 7, .last = 0.2});
  EXPECT_EQ(Gate(a, b), 0);
  EXPECT_THAT(RunPlumb({"diff", a, b}).output, Not(HasSubstr("rewards end apart")));
}

}  // namespace
}  // namespace plumbline::audit::testing
