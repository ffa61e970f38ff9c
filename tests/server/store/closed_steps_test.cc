// Blocks of closed steps become tiles. Compares them with a plain map of the values, and tests that
// the time is linear for any number of lists of columns.
#include "server/store/closed_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>
#include <tuple>

namespace plumbline::server {
namespace {

// (series, rank, step) -> value
using Values = std::map<std::tuple<uint32_t, uint32_t, int64_t>, double>;

StepPart Part(std::shared_ptr<const StoredColumns> columns, std::vector<uint32_t> ranks,
              std::mt19937& random, bool with_absent) {
  StepPart part;
  const size_t cells = ranks.size() * columns->series.size();
  for (size_t i = 0; i < cells; ++i) part.values.push_back(static_cast<double>(random()));
  if (with_absent) {
    for (size_t i = 0; i < (cells + 63) / 64; ++i)
      part.absent.push_back((uint64_t{random()} << 32 | random()));
  }
  part.columns = std::move(columns);
  part.ranks = std::move(ranks);
  return part;
}

Values Expected(const std::vector<ClosedStepPtr>& steps) {
  Values values;
  for (const ClosedStepPtr& step : steps) {
    for (const StepPart& part : step->parts) {
      const std::vector<uint32_t>& series = part.columns->series;
      for (size_t r = 0; r < part.ranks.size(); ++r) {
        for (size_t c = 0; c < series.size(); ++c) {
          const size_t cell = r * series.size() + c;
          if (!part.Absent(cell))
            values[{series[c], part.ranks[r], step->step}] = part.values[cell];
        }
      }
    }
  }
  return values;
}

Values Built(const std::vector<ClosedStepPtr>& steps) {
  Values values;
  std::pair<uint32_t, uint32_t> last{0, 0};
  const absl::Status status = BuildTiles(steps, 0, [&](const BuiltTile& built) {
    const std::pair<uint32_t, uint32_t> place{built.rank_block, built.series};
    EXPECT_LT(last, place);
    last = place;
    size_t cell = 0;
    for (const int64_t step : built.tile->steps) {
      for (uint32_t lane = 0; lane < kTileRanks; ++lane) {
        if (((built.tile->ranks >> lane) & 1) == 0) continue;
        const size_t i = cell++;
        const auto& absent = built.tile->absent;
        if (!absent.empty() && ((absent[i / 64] >> (i % 64)) & 1) != 0) continue;
        const uint32_t rank = built.rank_block * kTileRanks + lane;
        values[{built.series, rank, step}] = built.tile->values[i];
      }
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  return values;
}

// Lists overlap, a series may be in several of them and twice in one, and ranks have several rows.
TEST(ClosedSteps, TilesHaveTheLastValueOfEach) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::shared_ptr<const StoredColumns>> lists;
    for (uint32_t l = 0, n = 1 + random() % 8; l < n; ++l) {
      auto columns = std::make_shared<StoredColumns>();
      for (uint32_t c = 0, width = 1 + random() % 90; c < width; ++c)
        columns->series.push_back(1 + random() % 120);
      lists.push_back(std::move(columns));
    }
    std::vector<ClosedStepPtr> steps;
    for (int64_t s = 0; s < 5; ++s) {
      auto step = std::make_shared<ClosedStep>();
      step->step = 3 * s;
      for (uint32_t p = 0, n = 1 + random() % 6; p < n; ++p) {
        std::vector<uint32_t> ranks;
        for (uint32_t r = 0, count = 1 + random() % 4; r < count; ++r)
          ranks.push_back(random() % 150);
        step->parts.push_back(
            Part(lists[random() % lists.size()], std::move(ranks), random, random() % 2 == 0));
      }
      steps.push_back(std::move(step));
    }
    EXPECT_EQ(Built(steps), Expected(steps)) << "seed " << seed;
  }
}

// Returns the processor's seconds for a step of `lists` lists of ten series each.
double SecondsFor(uint32_t lists) {
  std::mt19937 random(1);
  auto step = std::make_shared<ClosedStep>();
  for (uint32_t l = 0; l < lists; ++l) {
    auto columns = std::make_shared<StoredColumns>();
    for (uint32_t c = 0; c < 10; ++c) columns->series.push_back(1 + l * 10 + c);
    step->parts.push_back(Part(std::move(columns), {0}, random, false));
  }
  const auto seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = seconds();
    size_t tiles = 0;
    (void)BuildTiles({step}, 0, [&](const BuiltTile&) { return ++tiles, absl::OkStatus(); });
    least = std::min(least, seconds() - start);
    EXPECT_EQ(tiles, lists * 10);
  }
  return least;
}

// Before, sixteen times as many lists took 250 times as long.
TEST(ClosedSteps, TheirTimeIsLinearInTheListsOfColumns) {
  const double few = SecondsFor(250), many = SecondsFor(4000);
  EXPECT_LT(many, 64 * few) << few << " s for 250 lists, " << many << " s for 4000";
}

}  // namespace
}  // namespace plumbline::server
