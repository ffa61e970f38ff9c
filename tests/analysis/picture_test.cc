// Tests arrays for plots: bounded, evenly sampled, with outliers, unchanged after a checkpoint.
#include "analysis/picture/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

TEST(Evenly, KeepsAllThatFitAndWhatIsRequestedOtherwise) {
  EXPECT_EQ(Evenly(3, 8), (std::vector<size_t>{0, 1, 2}));
  EXPECT_TRUE(Evenly(0, 8).empty());
  const auto kept = Evenly(1000, 10, {501, 999});
  EXPECT_LE(kept.size(), 10u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_NE(std::find(kept.begin(), kept.end(), 501u), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), 999u), kept.end());
  EXPECT_EQ(kept.front(), 0u);
}

TEST(PointSample, IsBoundedEvenAndKeepsOutliers) {
  PointSample sample;
  for (int i = 0; i < 100'000; ++i)
    sample.Add({double(i), 0, 0, i == 77'777 ? -50.0 : 1e-3 * (i % 7)});
  const auto points = sample.points();
  EXPECT_EQ(sample.seen(), 100'000u);
  EXPECT_LE(points.size(), kMostPoints + kMostOutliers);
  EXPECT_GT(points.size(), kMostPoints / 2);
  EXPECT_TRUE(std::any_of(points.begin(), points.end(),
                          [](const PointSample::Point& p) { return p.a == 77'777; }));
  // All gaps between the evenly spaced points are equal.
  EXPECT_EQ(points[1].a - points[0].a, points[2].a - points[1].a);
  EXPECT_GT(points[100].a, 30'000);
}

TEST(PointSample, GoesOnAfterACheckpointAsIfThereHadBeenNone) {
  PointSample whole, before;
  const auto point = [](int i) {
    return PointSample::Point{double(i), -double(i), std::nan(""), std::sin(i)};
  };
  for (int i = 0; i < 5000; ++i) whole.Add(point(i));
  for (int i = 0; i < 2500; ++i) before.Add(point(i));
  Archive writer;
  writer(before);
  const std::string bytes = writer.Take();
  PointSample after;
  Archive reader(bytes);
  reader(after);
  ASSERT_TRUE(reader.ok());
  for (int i = 2500; i < 5000; ++i) after.Add(point(i));
  ASSERT_EQ(after.points().size(), whole.points().size());
  for (size_t i = 0; i < whole.points().size(); ++i)
    EXPECT_EQ(after.points()[i].a, whole.points()[i].a);
}

TEST(PutNumbers, RoundsToSixDigitsAndKeepsWhatIsNotFinite) {
  google::protobuf::Struct s;
  PutNumbers(s, "x", {1.0 / 3, 123456789.0, 0, std::nan(""), -1e-300, 1e300});
  const auto& list = s.fields().at("x").list_value();
  EXPECT_EQ(list.values(0).number_value(), 0.333333);
  EXPECT_EQ(list.values(1).number_value(), 123457000.0);
  EXPECT_EQ(list.values(2).number_value(), 0);
  EXPECT_TRUE(std::isnan(list.values(3).number_value()));
  EXPECT_EQ(list.values(5).number_value(), 1e300);
}

}  // namespace
}  // namespace plumbline::analysis
