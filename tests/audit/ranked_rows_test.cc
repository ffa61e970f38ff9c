// Tables and JSON lines in which several ranks write.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/audit/point_reading.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoints;
using Steps = std::vector<int64_t>;
using Values = std::vector<double>;
using Ranks = std::vector<int64_t>;

PointsRead Csv(const std::string& bytes) { return ReadPoints(CsvFormat(), bytes, {}, "r.csv"); }

// A column "rank" gives each row its rank, in any order of the rows. It is no series.
TEST(RankedRows, RowsOfRanks) {
  const PointsRead mixed = Csv("rank,step,loss\n3,1,2.5\n0,1,2.25\n3,2,2.125\n0,2,2\n");
  EXPECT_EQ(mixed.Problems(), "");
  EXPECT_EQ(mixed.rank, 3);
  EXPECT_EQ(mixed.Ranks(), (Ranks{3, 0, 3, 0}));
  EXPECT_EQ(mixed.Values("rank"), Values());
  EXPECT_EQ(mixed.Steps("loss"), (Steps{1, 1, 2, 2}));
  // All rows of one rank first, more of them than are looked at.
  std::string sorted = "step,global_rank,loss\n";
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 1; step <= 100; ++step)
      sorted += std::to_string(step) + "," + std::to_string(rank) + ",2.5\n";
  }
  const PointsRead apart = Csv(sorted);
  EXPECT_EQ(apart.Steps("loss").size(), 200u);
  Ranks of_losses;
  for (const auto& point : apart.points) {
    if (point.series == "loss") of_losses.push_back(point.rank);
  }
  EXPECT_EQ(std::count(of_losses.begin(), of_losses.end(), 0), 100);
  EXPECT_EQ(std::count(of_losses.begin(), of_losses.end(), 1), 100);
}

// An effective rank, a rank of a search, and ranks that are fractions are series.
TEST(RankedRows, RanksThatAreNone) {
  for (const char* const rows :
       {"1,64,2\n2,63,2\n3,62,2\n", "1,0.5,2\n1,0.25,2\n2,0.5,2\n", "1,-1,2\n1,3,2\n2,-1,2\n"}) {
    const PointsRead read = Csv(std::string("step,rank,loss\n") + rows);
    EXPECT_EQ(read.Values("rank").size(), 3u) << rows;
    EXPECT_EQ(read.Ranks(), (std::vector<int64_t>(6, -1))) << rows;
  }
}

// A key "rank" gives each object its rank.
TEST(RankedRows, ObjectsOfRanks) {
  const PointsRead read = ReadPoints(
      JsonLinesFormat(),
      "{\"rank\": 1, \"step\": 1, \"loss\": 2.5}\n{\"rank\": 0, \"step\": 1, \"loss\": 2}\n"
      "{\"rank\": 1, \"step\": 2, \"loss\": 2.25}\n{\"step\": 2, \"loss\": 1.5}\n",
      {}, "r.jsonl");
  EXPECT_EQ(read.Problems(), "");
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.Text(), "1 loss 2.500000\n1 loss 2.000000\n2 loss 2.250000\n2 loss 1.500000\n");
  // An object without the key belongs to the rank of the one before it.
  EXPECT_EQ(read.Ranks(), (std::vector<int64_t>{1, 0, 1, 1}));
}

}  // namespace
}  // namespace plumbline::audit
