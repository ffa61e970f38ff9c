// PointCursor: each point once, by step, for any batches.
#include "audit/follow/point_cursor.h"

#include <gtest/gtest.h>

namespace plumbline::audit {
namespace {

struct Points {
  PointRuns runs;
  RunPoints& run() { return runs.runs.at("r"); }
  void Add(const std::string& name, uint32_t attempt, int64_t step, double value = 1) {
    PointSeries* series = runs.Series(runs.Lane("r", 0), name);
    series->Add(attempt, step, value);
  }
};

size_t CountValues(const v1::Batch& batch) {
  size_t count = 0;
  for (const v1::SeriesRows& rows : batch.series()) count += static_cast<size_t>(rows.value_size());
  return count;
}

TEST(PointCursor, GivesWhatIsNewUpToTheStepThatIsWhole) {
  Points points;
  PointCursor cursor(1);
  for (int64_t step = 0; step < 10; ++step) points.Add("loss", 0, step);
  v1::Batch batch;
  ASSERT_TRUE(cursor.Next(&points.run(), 8, &batch));
  EXPECT_EQ(CountValues(batch), 9u);
  EXPECT_EQ(batch.progress(0).complete_through(), 8);
  EXPECT_EQ(batch.series_sets_size(), 1);
  EXPECT_FALSE(cursor.Next(&points.run(), 8, &batch));
  points.Add("lr", 0, 9);
  ASSERT_TRUE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_EQ(CountValues(batch), 2u);
  EXPECT_EQ(batch.progress(0).complete_through(), 9);
  EXPECT_FALSE(cursor.TakeLate());
  points.Add("grad_norm", 0, 3);
  ASSERT_TRUE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_EQ(batch.progress(0).complete_through(), 9);
  EXPECT_TRUE(cursor.TakeLate());
}

TEST(PointCursor, ManyPointsInBatchesByStep) {
  Points points;
  PointCursor cursor(1);
  constexpr int64_t kSteps = 150'000;
  for (int64_t step = 0; step < kSteps; ++step) {
    points.Add("loss", 0, step);
    if (step % 3 == 0) points.Add("lr", 0, step);
  }
  size_t values = 0;
  int64_t through = -1;
  for (v1::Batch batch; cursor.Next(&points.run(), INT64_MAX, &batch);) {
    values += CountValues(batch);
    EXPECT_LE(CountValues(batch), PointCursor::kValues + 1);
    EXPECT_GT(batch.progress(0).complete_through(), through);
    through = batch.progress(0).complete_through();
  }
  EXPECT_EQ(values, static_cast<size_t>(kSteps + kSteps / 3));
  EXPECT_EQ(through, kSteps - 1);
  EXPECT_FALSE(cursor.TakeLate());
}

TEST(PointCursor, AttemptsOneAfterTheOther) {
  Points points;
  PointCursor cursor(1);
  for (int64_t step = 0; step < 20; ++step) points.Add("loss", 0, step);
  for (int64_t step = 5; step < 10; ++step) points.Add("loss", 1, step);
  v1::Batch batch;
  ASSERT_TRUE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_EQ(batch.sources(0).attempt(), 0u);
  EXPECT_EQ(batch.progress(0).complete_through(), 19);
  ASSERT_TRUE(cursor.Next(&points.run(), 8, &batch));
  EXPECT_EQ(batch.sources(0).attempt(), 1u);
  EXPECT_EQ(CountValues(batch), 4u);
  EXPECT_FALSE(cursor.TakeLate());
}

TEST(PointCursor, WhatTheServerHasIsSkipped) {
  Points points;
  for (int64_t step = 0; step < 20; ++step) points.Add("loss", 0, step);
  for (int64_t step = 5; step < 15; ++step) points.Add("loss", 1, step);
  PointCursor cursor(1);
  cursor.SkipThrough("r", 1, 9);
  v1::Batch batch;
  ASSERT_TRUE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_EQ(batch.sources(0).attempt(), 1u);
  EXPECT_EQ(CountValues(batch), 5u);
  EXPECT_FALSE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_TRUE(cursor.Goodbye(points.run(), &batch));
  EXPECT_TRUE(batch.progress(0).finished());
}

TEST(PointCursor, AnEndIsStatedOnce) {
  Points points;
  points.Add("loss", 0, 1);
  points.runs.Lane("r", 0)->exit_status = 3;
  PointCursor cursor(1);
  v1::Batch batch;
  ASSERT_TRUE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_TRUE(batch.progress(0).finished());
  EXPECT_FALSE(cursor.Next(&points.run(), INT64_MAX, &batch));
  EXPECT_FALSE(cursor.Goodbye(points.run(), &batch));
}

}  // namespace
}  // namespace plumbline::audit
