// Tests health/learning-rate on runs that resume: schedules that continue, roll back or are cyclic
// are not reported; schedules that restart, or run as many times faster as there are processes, are
// found.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/rules/support/spec_values.h"
#include "tests/rules/support/verdicts.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::Verdicts;
using testing::VerdictsOn;
using Schedule = std::function<double(double counter)>;

constexpr char kRule[] = "health/learning-rate";

// The injector: one attempt of a run; the schedule is a function of a counter.
struct RateAttempt {
  Schedule schedule;
  int first = 0, steps = 300;
  double counter = 0;  // at the first step
  double speed = 1;    // counts per step
  uint32_t world = 8;
  bool rounded = false;  // to four digits, as logs are
};

std::vector<v1::Batch> Run(const std::vector<RateAttempt>& attempts) {
  std::vector<v1::Batch> batches;
  for (uint32_t attempt = 0; attempt < attempts.size(); ++attempt) {
    const RateAttempt& a = attempts[attempt];
    v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, a.world, attempt));
    for (int i = 0; i < a.steps; ++i) {
      double rate = a.schedule(a.counter + a.speed * i);
      if (a.rounded) rate = std::stod(absl::StrFormat("%.3e", rate));
      test::AddScalar(&batch, "lr", a.first + i, rate);
    }
    test::AddProgress(&batch, a.first + a.steps - 1);
    batches.push_back(std::move(batch));
  }
  return batches;
}

Verdicts Judged(const std::vector<RateAttempt>& attempts,
                const std::vector<std::string>& settings = {}) {
  Verdicts verdicts = VerdictsOn(Run(attempts), {.rules = {kRule}, .settings = settings});
  std::erase_if(verdicts, [](const v1::Verdict& v) { return v.rule() != kRule; });
  return verdicts;
}

int FindingsOf(const std::vector<RateAttempt>& attempts,
               const std::vector<std::string>& settings = {}) {
  return testing::Findings(Judged(attempts, settings), kRule);
}

// Returns a schedule of one of the usual kinds, over `length` counts; the lowest rate is a tenth of
// `peak`.
Schedule Usual(int kind, double peak, double warm_up, double length) {
  return [=](double c) {
    if (c < warm_up) return peak * c / warm_up;
    const double t = std::min(1.0, (c - warm_up) / (length - warm_up));
    switch (kind % 4) {
      case 0:
        return peak * (0.1 + 0.45 * (1 + std::cos(3.14159265358979 * t)));
      case 1:
        return peak * (1 - 0.9 * t);
      case 2:
        return peak * std::pow(0.1, t);
      default:
        return peak * (t < 0.7 ? 1 : 1 - 3 * (t - 0.7));
    }
  };
}

// 1,000 runs with one to three resumes anywhere, rolled back or not.
TEST(LearningRateResume, NoFalseAlarmOnSchedulesThatGoOn) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Draw draw(seed);
    const int length = 300 + testing::Pick(draw, 1200);
    const Schedule schedule = Usual(static_cast<int>(seed), std::pow(10.0, -2 - 3 * draw.Uniform()),
                                    seed % 3 == 0 ? 0 : 5 + testing::Pick(draw, 200), length);
    std::vector<RateAttempt> attempts;
    int at = 0;
    const int resumes = 1 + testing::Pick(draw, 3);
    for (int r = 0; r <= resumes; ++r) {
      RateAttempt a{.schedule = schedule, .first = at, .counter = static_cast<double>(at)};
      a.steps = 20 + testing::Pick(draw, length / (resumes + 1));
      a.world = 1u << testing::Pick(draw, 6);
      a.rounded = seed % 5 == 0;
      attempts.push_back(a);
      at = std::max(0, at + a.steps - (seed % 2 == 0 ? testing::Pick(draw, a.steps) : 0));
    }
    EXPECT_EQ(FindingsOf(attempts), 0) << seed;
  }
}

TEST(LearningRateResume, StartsAgain) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draw draw(seed);
    const Schedule schedule = Usual(static_cast<int>(seed % 3), 3e-4, 20, 400);
    const int at = 380 + testing::Pick(draw, 15);  // below a quarter
    const Verdicts verdicts =
        Judged({{.schedule = schedule, .steps = at + testing::Pick(draw, 5)},
                {.schedule = schedule, .first = at, .steps = 100, .counter = 20}});
    ASSERT_EQ(testing::Findings(verdicts, kRule), 1) << seed;
    EXPECT_EQ(verdicts[0].finding().cause().id(), "schedule-not-restored");
    EXPECT_EQ(verdicts[0].finding().strength(), v1::STRENGTH_PROVED);
    EXPECT_EQ(verdicts[0].site().step_first(), at);
  }
}

// From the resume on, each process steps the scheduler.
TEST(LearningRateResume, RunsAsManyTimesFasterAsThereAreProcesses) {
  int found = 0, runs = 0;
  for (const uint32_t world : {2u, 4u, 8u}) {
    for (int kind = 0; kind < 3; ++kind) {
      for (int at = 300; at <= 1200; at += 100) {
        const Schedule schedule = Usual(kind, 3e-4, 50, 4000);
        const Verdicts verdicts = Judged({{.schedule = schedule, .steps = at, .world = world},
                                          {.schedule = schedule,
                                           .first = at,
                                           .counter = static_cast<double>(at),
                                           .speed = static_cast<double>(world),
                                           .world = world}});
        ++runs;
        for (const v1::Verdict& v : verdicts) {
          if (v.kind() != v1::Verdict::KIND_FINDING) continue;
          ++found;
          EXPECT_EQ(v.finding().cause().id(), "scheduler-stepped-oftener");
          EXPECT_NEAR(v.finding().measured().value(), world, 0.02 * world);
        }
      }
    }
  }
  EXPECT_EQ(found, runs);
}

// Also in the warm-up, and if the number of processes grew.
TEST(LearningRateResume, WarmsUpFaster) {
  const Schedule schedule = Usual(1, 3e-4, 2000, 10000);
  for (const uint32_t before : {1u, 4u}) {
    EXPECT_EQ(FindingsOf({{.schedule = schedule, .steps = 200, .world = before},
                          {.schedule = schedule,
                           .first = 200,
                           .steps = 100,
                           .counter = 200,
                           .speed = 8.0 / before,
                           .world = 8}}),
              1)
        << before;
  }
}

// With eight processes, a schedule three or two and a half times as fast may be intended.
TEST(LearningRateResume, OtherSpeedsAreNone) {
  const Schedule schedule = Usual(1, 3e-4, 50, 4000);
  for (const double speed : {0.5, 1.0, 1.5, 2.5, 3.0, 5.0, 7.5}) {
    EXPECT_EQ(FindingsOf({{.schedule = schedule, .steps = 300},
                          {.schedule = schedule, .first = 300, .counter = 300, .speed = speed}}),
              0)
        << speed;
  }
}

TEST(LearningRateResume, Declared) {
  const Schedule schedule = Usual(1, 3e-4, 100, 500);
  const std::vector<RateAttempt> run = {{.schedule = schedule, .steps = 700, .world = 1}};
  EXPECT_EQ(FindingsOf(run), 0);
  for (const int times : {1, 2, 4, 8}) {
    const int found = times > 1 ? 1 : 0;
    EXPECT_EQ(FindingsOf(run, {absl::StrCat(kRule, ".warmup=", 100 * times)}), found) << times;
    EXPECT_EQ(FindingsOf(run, {absl::StrCat(kRule, ".steps=", 500 * times)}), found) << times;
  }
  EXPECT_EQ(FindingsOf(run, {absl::StrCat(kRule, ".warmup=150")}), 0);
  EXPECT_EQ(FindingsOf(run, {absl::StrCat(kRule, ".steps=600")}), 0);
}

TEST(LearningRateResume, PoisonNeitherAccusesNorBlinds) {
  const Schedule schedule = Usual(1, 3e-4, 20, 400);
  const Schedule poisoned = [=](double c) {
    return std::fmod(c, 7) < 1 ? std::nan("") : schedule(c);
  };
  EXPECT_EQ(FindingsOf({{.schedule = poisoned, .steps = 390},
                        {.schedule = poisoned, .first = 390, .counter = 390}}),
            0);
  EXPECT_EQ(FindingsOf({{.schedule = poisoned, .steps = 390},
                        {.schedule = poisoned, .first = 390, .steps = 50, .counter = 22}}),
            1);
}

}  // namespace
}  // namespace plumbline::rules
