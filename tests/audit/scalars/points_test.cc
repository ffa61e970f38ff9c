// Compares attempts, order and bounds of points, of any format, with a slow reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <set>

#include "audit/readers/input/file_places.h"
#include "audit/readers/input/json_cursor.h"
#include "audit/readers/scalars/batches.h"
#include "audit/readers/scalars/file_sink.h"
#include "audit/readers/scalars/scalar_reader.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PointKey;
using testing::ReadPoints;

struct Point {
  int64_t step;
  std::string series;
  double value;
};

// A format whose files hold these points. The run and the rank are in the paths.
std::map<std::string, std::vector<Point>> g_files;  // by path
constexpr int64_t kResume = -7;  // a point of this step: the file reports a resume

class TestFile : public PointFile {
 public:
  explicit TestFile(std::vector<Point> points) : points_(std::move(points)) {}
  bool Read(PointSink* sink) override {
    for (size_t end = std::min(points_.size(), at_ + 100); at_ < end; ++at_) {
      const Point& point = points_[at_];
      if (point.step == kResume) {
        sink->Resumed();
      } else {
        sink->Add(point.step, sink->Column(point.series), point.value);
      }
    }
    return at_ < points_.size();
  }
  uint64_t bytes_read() const override { return at_; }
  void Close(PointSink*) override {}

 private:
  std::vector<Point> points_;
  size_t at_ = 0;
};

const PointFormat& TestFormat() {
  static constexpr PointFormat kFormat = {
      "test", [](std::string_view, std::string_view) { return true; },
      [](InputReport* report, const ScalarOptions&) -> std::unique_ptr<PointFile> {
        return std::make_unique<TestFile>(g_files.at(report->path));
      }};
  return kFormat;
}

ReadPoints ReadFiles(const std::map<std::string, std::vector<Point>>& files,
                     std::deque<InputReport>* reports, PointLimits limits = {}) {
  g_files = files;
  std::vector<InputReport*> all;
  for (const auto& [path, points] : files) {
    reports->emplace_back().path = path;
    all.push_back(&reports->back());
  }
  return testing::ReadAll(ScalarReader(TestFormat(), limits), all);
}

// The rule as the specification words it, one series after the other, without any cleverness.
std::map<PointKey, double> Reference(const std::string& run, uint32_t rank,
                                     const std::vector<Point>& points) {
  std::map<PointKey, double> out;
  uint32_t attempt = 0;
  bool any = false;
  std::map<std::string, std::vector<int64_t>> seen;  // of the attempt, in the order they came
  for (const Point& point : points) {
    if (point.step == kResume) {
      if (!any) continue;
      ++attempt;
      seen.clear();
      any = false;
      continue;
    }
    std::vector<int64_t>* steps = &seen[point.series];
    const auto newest = steps->end() - static_cast<long>(std::min<size_t>(8, steps->size()));
    const bool recent = std::find(newest, steps->end(), point.step) != steps->end();
    if (!recent && std::find(steps->begin(), steps->end(), point.step) != steps->end()) {
      ++attempt;
      seen.clear();
      steps = &seen[point.series];
    }
    if (!recent) steps->push_back(point.step);
    // The last row of a step counts, unless an earlier one is not finite.
    double& value = out.try_emplace({run, attempt, rank, point.step, point.series}).first->second;
    if (!recent || std::isfinite(value)) value = point.value;
    any = true;
  }
  return out;
}

// Several series of different cadence, steps out of order, repeats, restarts.
std::vector<Point> RandomPoints(std::mt19937& random) {
  std::vector<Point> points;
  int64_t step = 0;
  const uint32_t series = 1 + random() % 5;
  for (int i = 0; i < 400; ++i) {
    switch (random() % 40) {
      case 0:
        step = std::max<int64_t>(0, step - static_cast<int64_t>(random() % 60));  // a restart
        break;
      case 1:
        if (random() % 4 == 0) points.push_back({kResume, "", 0});
        break;
      default:
        step += static_cast<int64_t>(random() % 3);
    }
    const int64_t jitter = random() % 20 == 0 ? static_cast<int64_t>(random() % 12) : 0;
    for (uint32_t s = 0; s < series; ++s) {
      if (s > 0 && step % (s * 3) != 0) continue;
      const double value = random() % 30 == 0 ? std::numeric_limits<double>::infinity()
                                              : static_cast<double>(points.size());
      points.push_back({std::max<int64_t>(0, step - jitter), "s" + std::to_string(s), value});
    }
  }
  return points;
}

TEST(Points, AttemptsAndOrderAsTheReferenceHasThem) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<Point> points = RandomPoints(random);
    std::deque<InputReport> reports;
    const ReadPoints read = ReadFiles({{"/x/run.csv", points}}, &reports);
    EXPECT_TRUE(read.in_order);
    EXPECT_EQ(read.by_key, Reference("run.csv", 0, points));
    for (const Problem& problem : reports[0].problems)
      EXPECT_THAT(problem.text, HasSubstr("more values for steps that already had one"));
  }
}

// If a row of a micro-batch is NaN, the value of the step is NaN.
TEST(Points, ANonFiniteValueIsNotOverwritten) {
  const double nan = std::nan("");
  std::deque<InputReport> reports;
  const ReadPoints read =
      ReadFiles({{"/x/a.csv", {{1, "a", 2}, {1, "a", nan}, {1, "a", 3}, {2, "a", 4}, {2, "a", 5}}}},
                &reports);
  EXPECT_TRUE(std::isnan(read.by_key.at({"a.csv", 0, 0, 1, "a"})));
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 0, 2, "a"}), 5);
  ASSERT_EQ(reports[0].notes.size(), 1u);
  EXPECT_FALSE(reports[0].failed());
  EXPECT_THAT(reports[0].notes[0], HasSubstr("found 3 more values for steps"));
}

// In a log of several ranks, "rank1/loss" is the loss of rank 1.
TEST(Points, ARankInTheNameOfASeries) {
  std::deque<InputReport> reports;
  const std::vector<Point> points = {{1, "loss", 2},   {1, "rank1/loss", 3}, {1, "rank_2/loss", 4},
                                     {1, "rank1/", 5}, {1, "ranks/loss", 6}, {2, "rank1/loss", 7}};
  const ReadPoints read = ReadFiles({{"/x/a.csv", points}}, &reports);
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 0, 1, "loss"}), 2);
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 1, 1, "loss"}), 3);
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 2, 1, "loss"}), 4);
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 0, 1, "rank1/"}), 5);
  EXPECT_EQ(read.by_key.at({"a.csv", 0, 0, 1, "ranks/loss"}), 6);
  EXPECT_TRUE(read.in_order);
  ASSERT_EQ(reports[0].series.size(), 3u);
  EXPECT_EQ(reports[0].series[0].name, "loss");
  EXPECT_EQ(reports[0].series[0].points, 4u);
  // If the path states the rank, series' names are not parsed for one.
  const ReadPoints stated = ReadFiles({{"/x/rank3.csv", points}}, &reports);
  EXPECT_EQ(stated.by_key.at({"rank.csv", 0, 3, 1, "rank1/loss"}), 3);
}

TEST(Points, RanksAreJoinedByStep) {
  std::mt19937 random(1);
  std::map<std::string, std::vector<Point>> files;
  std::map<PointKey, double> expected;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    std::vector<Point>& points = files["/x/log_rank" + std::to_string(rank) + ".csv"];
    for (int64_t step = 0; step < 5000; ++step) {
      if (random() % 3 > 0) points.push_back({step, "loss", static_cast<double>(random() % 100)});
    }
    expected.merge(Reference("log.csv", rank, points));
  }
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles(files, &reports);
  EXPECT_TRUE(read.in_order);
  EXPECT_EQ(read.by_key, expected);
  EXPECT_EQ(read.batches[0].sources_size(), 3);
  EXPECT_EQ(read.batches[0].sources(2).world_size(), 3u);
}

// Batches stay small even if there are many series, each with its own steps.
TEST(Points, ManySeriesOfTheirOwnSteps) {
  std::vector<Point> points;
  constexpr int64_t kSeries = 3000, kEach = 40;
  for (int64_t i = 0; i < kEach; ++i) {
    for (int64_t s = 0; s < kSeries; ++s)
      points.push_back({i * kSeries + s, "s" + std::to_string(s), 1});
  }
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/a.csv", points}}, &reports);
  EXPECT_TRUE(read.in_order);
  EXPECT_EQ(read.points.size(), points.size());
  EXPECT_LE(read.batches.size(), 4u);
  for (const v1::Batch& batch : read.batches) {
    size_t values = 0;
    for (const v1::SeriesRows& rows : batch.series())
      values += static_cast<size_t>(rows.value_size());
    EXPECT_LE(values, 2 * PointBatches::kValues);
  }
}

TEST(Points, SeriesOfTheSameStepsAreOneSet) {
  std::vector<Point> points;
  for (int64_t step = 0; step < 10; ++step) {
    points.push_back({step, "a", 1});
    points.push_back({step, "b", 1});
    if (step % 5 == 0) points.push_back({step, "c", 1});
  }
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/a.csv", points}}, &reports);
  ASSERT_EQ(read.batches.size(), 2u);  // the first one has few values
  ASSERT_EQ(read.batches[0].series_sets_size(), 2);
  EXPECT_EQ(read.batches[0].series_sets(0).sites_size(), 2);
}

TEST(Points, BeyondTheBoundsAllIsCounted) {
  std::vector<Point> points;
  for (int64_t step = 0; step < 100; ++step) {
    for (int s = 0; s < 5; ++s) points.push_back({step, "s" + std::to_string(s), 1});
  }
  const auto left = [&](PointLimits limits, const char* stated) {
    std::deque<InputReport> reports;
    const ReadPoints read = ReadFiles({{"/x/a.csv", points}}, &reports, limits);
    EXPECT_TRUE(reports[0].failed());
    EXPECT_EQ(reports[0].problems.size(), 1u);
    EXPECT_THAT(reports[0].problems[0].text, HasSubstr(stated));
    EXPECT_EQ(read.batches[0].losses_size(), 1);
    return read.points.size();
  };
  PointLimits names, few, length;
  names.names = 3;
  few.points = 120;
  length.name_bytes = 1;
  EXPECT_EQ(left(names, "200 points are ignored"), 300u);
  EXPECT_EQ(left(few, "380 points are ignored"), 120u);
  g_files.clear();
  std::deque<InputReport> reports;
  EXPECT_TRUE(ReadFiles({{"/x/a.csv", points}}, &reports, length).points.empty());
  EXPECT_THAT(reports[0].problems[0].text, HasSubstr("500 points are ignored"));
}

TEST(Points, AttemptsBeyondTheBoundAreOne) {
  std::vector<Point> points;
  for (int again = 0; again < 50; ++again) {
    for (int64_t step = 0; step < 20; ++step) points.push_back({step, "a", 1.0 * again});
  }
  PointLimits limits;
  limits.attempts = 5;
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/a.csv", points}}, &reports, limits);
  EXPECT_EQ(read.points.size(), 100u);
  EXPECT_TRUE(reports[0].failed());
}

// Both files report the restart. It counts once.
TEST(Points, ARestartWithinTheFilesOfTwoSplits) {
  std::vector<Point> points;
  for (int again = 0; again < 2; ++again) {
    for (int64_t step = 0; step < 20; ++step) points.push_back({step, "loss", 1.0 * again});
  }
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/train.csv", points}, {"/x/val.csv", points}}, &reports);
  EXPECT_TRUE(read.in_order);
  EXPECT_EQ(read.by_key.at({"train.csv", 1, 0, 7, "loss"}), 1);
  EXPECT_EQ(read.by_key.at({"train.csv", 1, 0, 7, "val/loss"}), 1);
  EXPECT_EQ(read.points.size(), 80u);
}

TEST(Points, NamesThatAreNoText) {
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/a.csv", {{0, "lo\xffss", 1}}}}, &reports);
  ASSERT_EQ(read.points.size(), 1u);
  EXPECT_TRUE(IsUtf8(std::get<4>(read.points[0].first)));
}

TEST(Points, NegativeStepsAreCounted) {
  std::deque<InputReport> reports;
  const ReadPoints read = ReadFiles({{"/x/a.csv",
                                      {{-1, "a", 1},
                                       {std::numeric_limits<int64_t>::min(), "a", 1},
                                       {0, "a", 1},
                                       {std::numeric_limits<int64_t>::max(), "a", 1}}}},
                                    &reports);
  EXPECT_EQ(read.points.size(), 2u);
  EXPECT_FALSE(reports[0].failed());
  EXPECT_THAT(reports[0].problems[0].text, HasSubstr("found 2 without"));
}

// run|rank|prefix of each path.
std::vector<std::string> Places(const std::vector<std::string>& paths, bool by_folder,
                                const ScalarOptions& options = {}) {
  std::vector<std::string> out;
  for (const FilePlace& place : PlaceFiles(paths, by_folder, options))
    out.push_back(place.run + "|" + std::to_string(place.rank) + "|" + place.prefix);
  return out;
}

TEST(Places, Files) {
  EXPECT_THAT(Places({"/a/loss.csv"}, false), ElementsAre("loss.csv|0|"));
  EXPECT_THAT(Places({"/a/loss.csv", "/b/loss.csv"}, false),
              ElementsAre("a/loss.csv|0|", "b/loss.csv|0|"));
  EXPECT_THAT(Places({"/a/c/loss.csv", "/b/c/loss.csv", "/b/c/x.csv"}, false),
              ElementsAre("a/c/loss.csv|0|", "b/c/loss.csv|0|", "x.csv|0|"));
  EXPECT_THAT(Places({"/a/train.csv", "/a/val.csv"}, false),
              ElementsAre("train.csv|0|", "train.csv|0|val"));
  EXPECT_THAT(Places({"/a/val.csv"}, false), ElementsAre("val.csv|0|"));
  EXPECT_THAT(Places({"/a/rank0.log", "/a/rank12.log"}, false),
              ElementsAre("rank.log|0|", "rank.log|12|"));
  EXPECT_THAT(Places({"/a/train_rank_3.log", "/a/train-rank4.log"}, false),
              ElementsAre("train.log|3|", "train.log|4|"));
  EXPECT_THAT(Places({"/a/local_rank3.log"}, false), ElementsAre("local_rank3.log|0|"));
  EXPECT_THAT(Places({"/a/frank3.log"}, false), ElementsAre("frank3.log|0|"));
  EXPECT_THAT(Places({"/a/rank99999999999999999999.log"}, false),
              ElementsAre("rank99999999999999999999.log|0|"));
}

TEST(Places, WithinWhatTheUserStates) {
  ScalarOptions options;
  options.run = "mine";
  EXPECT_THAT(Places({"/a/loss.csv"}, false, options), ElementsAre("mine|0|"));
  EXPECT_THAT(Places({"/a/x.csv", "/a/y.csv"}, false, options),
              ElementsAre("mine/x.csv|0|", "mine/y.csv|0|"));
  options.run = "mine";
  options.within = true;
  EXPECT_THAT(Places({"/a/loss.csv"}, false, options), ElementsAre("mine/loss.csv|0|"));
  EXPECT_THAT(Places({"/a/x.csv", "/a/y.csv"}, false, options),
              ElementsAre("mine/x.csv|0|", "mine/y.csv|0|"));
}

TEST(Places, Folders) {
  EXPECT_THAT(Places({"/r/exp/e1"}, true), ElementsAre("exp|0|"));
  EXPECT_THAT(Places({"/r/exp/train/e1", "/r/exp/validation/e2"}, true),
              ElementsAre("exp|0|train", "exp|0|validation"));
  EXPECT_THAT(Places({"/r/exp/e1", "/r/exp/loss_train/e2", "/r/other/e3"}, true),
              ElementsAre("exp|0|", "exp|0|loss_train", "other|0|"));
  EXPECT_THAT(Places({"/r/exp/rank_0/e1", "/r/exp/rank_1/e2"}, true),
              ElementsAre("exp|0|", "exp|1|"));
  EXPECT_THAT(Places({"/r/1/tb/e", "/r/2/tb/e"}, true), ElementsAre("1/tb|0|", "2/tb|0|"));
}

TEST(Places, WhatTheUserStates) {
  ScalarOptions options;
  options.run = "mine";
  EXPECT_THAT(Places({"/a/loss.csv"}, false, options), ElementsAre("mine|0|"));
  EXPECT_THAT(Places({"/a/x.csv", "/a/y.csv"}, false, options),
              ElementsAre("mine/x.csv|0|", "mine/y.csv|0|"));
  options.rank_pattern = "host\\d+-gpu(\\d+)-";
  EXPECT_THAT(Places({"/a/host1-gpu5-x.csv"}, false, options), ElementsAre("mine|5|"));
  EXPECT_FALSE(CheckRankPattern("(").ok());
  EXPECT_FALSE(CheckRankPattern("rank\\d+").ok());
  EXPECT_TRUE(CheckRankPattern("r(\\d+)").ok());
}

}  // namespace
}  // namespace plumbline::audit
