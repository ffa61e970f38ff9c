// Tests the detector against a slow implementation of the exact definition: equal on random curves
// with all plantable events, at every size around a limit, across checkpoints and resumes.
// Non-finite values never break it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "analysis/series/series.h"
#include "tests/analysis/series/curves.h"
#include "tests/analysis/series/event_words.h"
#include "tests/analysis/series/slow_series.h"

namespace plumbline::analysis::testing {
namespace {

SlowAnswer Sorted(const std::vector<SeriesEvent>& events) {
  SlowAnswer answer;
  for (const SeriesEvent& event : events) {
    if (event.what == SeriesEvent::What::kDoubled) continue;  // of norms: slow_norms_test
    const bool rise = event.of_rise();
    (rise ? answer.rises : answer.excursions).push_back(WordsOf(event));
  }
  return answer;
}

std::vector<SeriesEvent> Judge(const std::vector<SlowPoint>& points,
                               const std::set<uint64_t>& restarts = {}) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  for (size_t i = 0; i < points.size(); ++i) {
    if (restarts.contains(i)) detector.RestartRate();
    detector.Take(0, points[i].step, points[i].value, &events);
  }
  detector.End(&events);
  return events;
}

void ExpectSame(const std::vector<SlowPoint>& points, const std::string& what) {
  const SlowAnswer fast = Sorted(Judge(points)), slow = JudgeSlowly({}, points);
  ASSERT_EQ(fast.excursions, slow.excursions) << what;
  ASSERT_EQ(fast.rises, slow.rises) << what;
}

// Returns a curve with frequent events of every kind.
std::vector<SlowPoint> Wild(uint64_t seed, size_t most) {
  CurveRandom random(seed);
  CurveSpec spec;
  spec.points = 16 + random.Below(most);
  spec.noise = std::pow(10, random.Uniform(-4, -0.5));
  spec.correlation = random.Below(3) == 0 ? random.Uniform(0, 0.95) : 0;
  spec.tail = static_cast<CurveSpec::Tail>(random.Below(3));
  spec.rounding = random.Below(4) == 0 ? std::pow(10, -random.Uniform(0, 3)) : 0;
  spec.scale = random.Uniform(1, 200);
  spec.plateau_from = random.Below(3) == 0 ? random.Below(spec.points) : 0;
  spec.seed = seed;
  std::vector<double> values = Curve(spec);
  const uint64_t faults = random.Below(6);
  for (uint64_t f = 0; f < faults; ++f) {
    const size_t at = random.Below(values.size());
    const size_t length = static_cast<size_t>(std::pow(10, random.Uniform(0, 3)));
    const double height = std::pow(10, random.Uniform(-2.5, 0.5));
    const uint64_t shape = random.Below(4);
    for (size_t i = at; i < std::min(values.size(), at + length); ++i) {
      const double done = static_cast<double>(i - at) / static_cast<double>(length);
      const double of = shape == 0   ? 1
                        : shape == 1 ? 1 - done
                        : shape == 2 ? done
                                     : random.Uniform();
      values[i] *= 1 + height * of;
    }
  }
  std::vector<SlowPoint> points;
  int64_t step = 0;
  for (const double value : values) {
    step += 1 + static_cast<int64_t>(random.Below(3));
    points.push_back({step, value});
  }
  return points;
}

// Returns the number of seeds: a third of `all`, or all if PLUMB_LONG=1.
uint64_t Seeds(uint64_t all) { return std::getenv("PLUMB_LONG") != nullptr ? all : all / 3; }

TEST(Robust, TheMedianOfNineIsTheFifthOfThem) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::array<double, 9> values;
    for (double& value : values)
      value = round % 2 == 0 ? static_cast<double>(random() % 4)
                             : std::ldexp(static_cast<double>(random() % 1000), -5);
    std::array<double, 9> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(MedianOfNine(values), sorted[4]);
  }
}

TEST(SeriesDetector, FollowsTheDefinitionOnWildCurves) {
  size_t excursions = 0, rises = 0;
  for (uint64_t seed = 0; seed < Seeds(200); ++seed) {
    const std::vector<SlowPoint> points = Wild(seed, 900);
    ExpectSame(points, "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
    const SlowAnswer answer = JudgeSlowly({}, points);
    excursions += answer.excursions.size();
    rises += answer.rises.size();
  }
  EXPECT_GT(excursions, 100u);  // the comparison is not empty
  EXPECT_GE(rises, 2u);
}

TEST(SeriesDetector, FollowsTheDefinitionOnLongCurves) {
  for (uint64_t seed = 1000; seed < 1006; ++seed) {
    ExpectSame(Wild(seed, 6000), "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

// Tests shifts, spikes and ramps around every limit of the definition.
TEST(SeriesDetector, FollowsTheDefinitionAroundEverySize) {
  const size_t starts[] = {15, 16, 17, 31, 32, 33, 34, 64, 127, 128, 255, 256, 257, 300};
  const size_t lengths[] = {1,  2,  3,  4,   6,   7,   8,   9,   15,  16,  17,
                            63, 64, 65, 126, 127, 128, 129, 130, 511, 512, 513};
  uint64_t seed = 5000;
  for (const size_t start : starts) {
    for (const size_t length : lengths) {
      CurveRandom random(++seed);
      std::vector<SlowPoint> points;
      const double height =
          random.Below(2) == 0 ? random.Uniform(0.04, 0.15) : random.Uniform(0.1, 1);
      const size_t after = random.Below(2) == 0 ? random.Below(4) : 40;
      const double noise = random.Below(2) == 0 ? 0.003 : 0.01;
      for (size_t i = 0; i < start + length + after; ++i) {
        const bool up = i >= start && i < start + length;
        points.push_back(
            {static_cast<int64_t>(i), 3 * std::exp(noise * random.Normal() + (up ? height : 0))});
      }
      ExpectSame(points, "start " + std::to_string(start) + " length " + std::to_string(length));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SeriesDetector, ValuesThatAreNotPositiveAreJudgedAsTheyAre) {
  for (uint64_t seed = 0; seed < Seeds(60); ++seed) {
    CurveRandom random(seed + 7000);
    std::vector<SlowPoint> points = {{0, -0.5}};  // from the first point on
    double level = random.Uniform(-2, 2);
    for (int64_t i = 1; i < 700; ++i) {
      if (random.Below(150) == 0) level += random.Uniform(-1, 3);
      const double spike = random.Below(100) == 0 ? random.Uniform(0, 5) : 0;
      points.push_back({i, level + spike + 0.1 * random.Normal()});
    }
    ExpectSame(points, "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

TEST(SeriesDetector, RestartsOfTheRateMakeNotes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<SlowPoint> points = Wild(seed + 8000, 800);
    CurveRandom random(seed);
    std::set<uint64_t> restarts;
    for (int i = 0; i < 3; ++i) restarts.insert(random.Below(points.size()));
    ASSERT_EQ(Sorted(Judge(points, restarts)).excursions,
              JudgeSlowly({}, points, restarts).excursions)
        << seed;
  }
}

// Tests that points repeated by a resume are judged with the points before it as history.
TEST(SeriesDetector, AResumeHasThePointsBeforeItAsHistory) {
  for (uint64_t seed = 0; seed < Seeds(60); ++seed) {
    const std::vector<SlowPoint> first = Wild(seed + 9000, seed % 4 == 0 ? 4000 : 900);
    CurveRandom random(seed);
    // Within the points that the detector stores individually.
    const size_t oldest = first.size() > 1500 ? first.size() - 1000 : 0;
    const size_t at = oldest + random.Below(first.size() - oldest);
    const std::vector<SlowPoint> before(first.begin(), first.begin() + static_cast<ptrdiff_t>(at));
    std::vector<SlowPoint> second;
    for (int64_t i = 0; i < 300; ++i) {
      const double up = i > 100 && i < 110 ? 0.4 : 0;
      second.push_back(
          {first[at].step + i, first[at].value * std::exp(up + 0.01 * random.Normal())});
    }
    SeriesDetector detector;
    std::vector<SeriesEvent> events;
    for (const SlowPoint& p : first) detector.Take(0, p.step, p.value, &events);
    detector.End(&events);  // open events are settled, as by a resume
    std::vector<SeriesEvent> own;
    for (const SlowPoint& p : second) detector.Take(1, p.step, p.value, &own);
    detector.End(&own);
    ASSERT_EQ(Sorted(own).excursions, JudgeSlowly(before, second).excursions) << seed;
  }
}

TEST(SeriesDetector, ACheckpointAfterAnyPointChangesNothing) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::vector<SlowPoint> points = Wild(seed + 600, 1500);
    auto detector = std::make_unique<SeriesDetector>();
    std::vector<SeriesEvent> events;
    for (size_t i = 0; i < points.size(); ++i) {
      detector->Take(0, points[i].step, points[i].value, &events);
      if (i % 7 != 0) continue;
      Archive out;
      out(*detector);
      const std::string bytes = out.Take();
      detector = std::make_unique<SeriesDetector>();
      Archive in(bytes);
      in(*detector);
      in.End();
      ASSERT_TRUE(in.ok()) << in.error();
    }
    detector->End(&events);
    const SlowAnswer answer = Sorted(events), whole = Sorted(Judge(points));
    ASSERT_EQ(answer.excursions, whole.excursions) << seed;
    ASSERT_EQ(answer.rises, whole.rises) << seed;
  }
}

TEST(SeriesDetector, NonFiniteValuesAreNotPoints) {
  const double inf = std::numeric_limits<double>::infinity();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<SlowPoint> points = Wild(seed + 3000, 700);
    CurveRandom random(seed);
    SeriesDetector detector;
    std::vector<SeriesEvent> events;
    for (const SlowPoint& p : points) {
      if (random.Below(4) == 0)
        detector.Take(0, p.step, random.Below(2) == 0 ? NAN : -inf, &events);
      detector.Take(0, p.step, p.value, &events);
    }
    detector.End(&events);
    EXPECT_EQ(Sorted(events).excursions, Sorted(Judge(points)).excursions);
  }
}

// Tests that no values in a file break the detector or make it slow.
TEST(SeriesDetector, TakesAnyNumbers) {
  const double odd[] = {0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e-300, 1, -1, NAN, INFINITY};
  for (uint64_t seed = 0; seed < 30; ++seed) {
    CurveRandom random(seed);
    SeriesDetector detector;
    std::vector<SeriesEvent> events;
    uint32_t attempt = 0;
    int64_t step = 0;
    for (int i = 0; i < 3000; ++i) {
      if (random.Below(400) == 0) {
        ++attempt;
        step = static_cast<int64_t>(random.Below(static_cast<uint64_t>(step) + 1));
      }
      const double value = random.Below(3) == 0 ? odd[random.Below(std::size(odd))]
                                                : std::exp(random.Uniform(-3, 3));
      detector.Take(attempt, step++, value, &events);
    }
    detector.End(&events);
    EXPECT_LT(events.size(), 6000u);
  }
}

TEST(SeriesDetector, RemembersLittle) {
  SeriesDetector detector;
  std::vector<SeriesEvent> events;
  CurveRandom random(1);
  for (int64_t i = 0; i < 200'000; ++i)
    detector.Take(0, i, std::exp(0.02 * random.Normal()), &events);
  Archive archive;
  archive(detector);
  EXPECT_LT(archive.Take().size(), 500u << 10);
}

#ifndef PLUMBLINE_SANITIZED  // mallinfo2 does not see the allocators of sanitizers
// Returns the heap bytes per detector for `count` detectors with `points` points each.
double BytesOfOne(int points) {
  constexpr int kCount = 500;
  std::vector<SeriesDetector> detectors;
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  detectors.resize(kCount);
  std::vector<SeriesEvent> events;
  for (SeriesDetector& detector : detectors) {
    for (int i = 0; i < points; ++i) detector.Take(0, i, 2 + 0.1 * std::sin(i), &events);
  }
  const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
  return static_cast<double>(after - before) / kCount;
}

// Regression test: 60,000 TensorBoard tags with "loss" in the name and one point each used 2.4 GB.
TEST(SeriesDetector, MemoryGrowsWithThePoints) {
  EXPECT_LT(BytesOfOne(1), 2000);
  EXPECT_LT(BytesOfOne(20), 4000);
  EXPECT_LT(BytesOfOne(600), 64000);
}
#endif

// Tests that a restored detector with few points continues as if never saved.
TEST(SeriesDetector, OneOfFewPointsIsKeptAndGoesOn) {
  for (const int points : {0, 1, 3, 17, 300, 700}) {
    SeriesDetector whole, kept;
    std::vector<SeriesEvent> expected, found;
    const auto take = [](SeriesDetector* to, int i, std::vector<SeriesEvent>* events) {
      const double spike = i % 400 == 399 ? 5 : 0;
      to->Take(0, i, 2 + 0.01 * std::sin(i * 1.7) + spike, events);
    };
    for (int i = 0; i < points; ++i) {
      take(&whole, i, &expected);
      take(&kept, i, &found);
    }
    Archive writes;
    writes(kept);
    const std::string bytes = writes.Take();
    Archive reads(bytes);
    kept = SeriesDetector();
    reads(kept);
    ASSERT_TRUE(reads.ok()) << reads.error();
    for (int i = points; i < points + 1500; ++i) {
      take(&whole, i, &expected);
      take(&kept, i, &found);
    }
    whole.End(&expected);
    kept.End(&found);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(Sorted(found).excursions, Sorted(expected).excursions) << points;
    EXPECT_EQ(Sorted(found).rises, Sorted(expected).rises) << points;
  }
}

}  // namespace
}  // namespace plumbline::analysis::testing
