// Series reduced for plots: bounded, and true to every value received.
#include "audit/session/series_collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace plumbline::audit {
namespace {

std::shared_ptr<rules::SeriesColumns> ColumnsNamed(const std::vector<std::string>& ops) {
  auto columns = std::make_shared<rules::SeriesColumns>();
  for (const std::string& op : ops) columns->sites.emplace_back().set_op(op);
  return columns;
}

struct Fed {
  std::string run = "run";
  uint32_t attempt = 0;
  int64_t step = 0;
  std::vector<std::vector<double>> rows;  // by rank
};

void Feed(const std::shared_ptr<rules::SeriesColumns>& columns, const Fed& fed,
          SeriesCollector* collector) {
  std::vector<rules::SeriesRow> rows;
  for (size_t rank = 0; rank < fed.rows.size(); ++rank)
    rows.push_back({static_cast<uint32_t>(rank), fed.rows[rank].data(), nullptr, 0});
  rules::StepSeries step;
  step.run = fed.run;
  step.attempt = fed.attempt;
  step.role = v1::ROLE_TRAINER;
  step.step = fed.step;
  step.columns = columns;
  step.rows = rows;
  collector->Take(step);
}

v1::Finding FindingAt(const std::string& op, const std::string& layer = "") {
  v1::Finding finding;
  finding.mutable_site()->set_run("run");
  finding.mutable_site()->set_layer(layer);
  finding.mutable_site()->set_op(op);
  return finding;
}

// For any steps: few buckets, in order, each of which summarises the values of its steps.
TEST(SeriesCollector, BucketsGiveWhatTheValuesGive) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    std::mt19937_64 random(seed);
    SeriesCollector collector;
    const auto columns = ColumnsNamed({"loss"});
    std::map<int64_t, std::vector<double>> all;
    int64_t step = -1000;
    for (int i = 0; i < 5000; ++i) {
      step += 1 + static_cast<int64_t>(random() % (seed % 2 == 0 ? 1 : 1000));
      std::vector<std::vector<double>> rows;
      for (int rank = 0; rank < 3; ++rank) {
        const double value = random() % 50 == 0
                                 ? std::numeric_limits<double>::quiet_NaN()
                                 : std::ldexp(static_cast<double>(random() % 997), -5);
        rows.push_back({value});
        all[step].push_back(value);
      }
      Feed(columns, {"run", 0, step, rows}, &collector);
    }
    const CollectedSeries* series = collector.Find(FindingAt("loss"));
    ASSERT_NE(series, nullptr);
    ASSERT_LE(series->buckets.size(), SeriesCollector::kMostBuckets);
    ASSERT_GT(series->buckets.size(), SeriesCollector::kMostBuckets / 4) << "thinned out too far";
    const int64_t width = int64_t{1} << series->bucket_bits;
    uint64_t seen = 0;
    for (size_t i = 0; i < series->buckets.size(); ++i) {
      const SeriesBucket& bucket = series->buckets[i];
      EXPECT_EQ(((bucket.step % width) + width) % width, 0);
      if (i > 0) {
        EXPECT_GT(bucket.step, series->buckets[i - 1].step);
      }
      double low = INFINITY, high = -INFINITY, last = 0;
      uint32_t finite = 0, non_finite = 0;
      for (auto at = all.lower_bound(bucket.step);
           at != all.end() && at->first < bucket.step + width; ++at) {
        bool first = true;
        for (const double value : at->second) {
          ++seen;
          std::isfinite(value) ? ++finite : ++non_finite;
          if (!std::isfinite(value)) continue;
          if (first) last = value;
          first = false;
          low = std::min(low, value);
          high = std::max(high, value);
        }
      }
      EXPECT_EQ(bucket.finite, finite);
      EXPECT_EQ(bucket.non_finite, non_finite);
      if (finite == 0) continue;
      EXPECT_EQ(bucket.min, low);
      EXPECT_EQ(bucket.max, high);
      EXPECT_EQ(bucket.last, last) << "the newest step's first finite rank";
    }
    EXPECT_EQ(seen, 15000u) << "every value is in some bucket";
  }
}

TEST(SeriesCollector, StepsAtTheEndsOfTheWorldAreKeptApart) {
  SeriesCollector collector;
  const auto columns = ColumnsNamed({"loss"});
  std::vector<int64_t> steps = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
  for (int64_t i = 0; i < 1000; ++i) steps.push_back(i << 40);
  std::sort(steps.begin(), steps.end());
  for (const int64_t step : steps) Feed(columns, {"run", 0, step, {{1.0}}}, &collector);
  const CollectedSeries* series = collector.Find(FindingAt("loss"));
  ASSERT_NE(series, nullptr);
  EXPECT_LE(series->buckets.size(), SeriesCollector::kMostBuckets);
  uint64_t values = 0;
  for (const SeriesBucket& bucket : series->buckets) values += bucket.finite;
  EXPECT_EQ(values, steps.size());
}

// Late evidence of an earlier step is added to the correct bucket.
TEST(SeriesCollector, OrderDoesNotMatterWithinAnAttempt) {
  SeriesCollector in_order, shuffled;
  const auto columns = ColumnsNamed({"loss"});
  std::vector<int64_t> steps(2000);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<int64_t>(i);
  const auto value = [](int64_t step) { return static_cast<double>(step * 37 % 101); };
  for (const int64_t step : steps) Feed(columns, {"run", 0, step, {{value(step)}}}, &in_order);
  std::shuffle(steps.begin(), steps.end(), std::mt19937(7));
  for (const int64_t step : steps) Feed(columns, {"run", 0, step, {{value(step)}}}, &shuffled);
  const auto& a = in_order.Find(FindingAt("loss"))->buckets;
  const auto& b = shuffled.Find(FindingAt("loss"))->buckets;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].min, b[i].min);
    EXPECT_EQ(a[i].max, b[i].max);
    EXPECT_EQ(a[i].last, b[i].last);
    EXPECT_EQ(a[i].finite, b[i].finite);
  }
}

TEST(SeriesCollector, ALaterAttemptSupersedesTheStepsThatItRepeats) {
  SeriesCollector collector;
  const auto columns = ColumnsNamed({"loss"});
  for (int64_t step = 0; step < 20; ++step) Feed(columns, {"run", 0, step, {{1.0}}}, &collector);
  for (int64_t step = 10; step < 15; ++step) Feed(columns, {"run", 1, step, {{2.0}}}, &collector);
  Feed(columns, {"run", 0, 12, {{99.0}}}, &collector);  // of the superseded attempt, late
  const auto& buckets = collector.Find(FindingAt("loss"))->buckets;
  ASSERT_EQ(buckets.size(), 15u);
  EXPECT_EQ(buckets[9].last, 1.0);
  EXPECT_EQ(buckets[12].max, 2.0);
}

TEST(SeriesCollector, KeepsAtMostKMostSeriesWithTheLosses) {
  SeriesCollector collector;
  for (size_t i = 0; i < SeriesCollector::kMostSeries + 500; ++i)
    Feed(ColumnsNamed({"s" + std::to_string(i)}), {"run", 0, 0, {{1.0}}}, &collector);
  Feed(ColumnsNamed({"train/loss"}), {"run", 0, 0, {{1.0}}}, &collector);
  EXPECT_EQ(collector.series().size(),
            SeriesCollector::kMostSeries - SeriesCollector::kForLosses + 1);
  EXPECT_NE(collector.Find(FindingAt("train/loss")), nullptr);
  EXPECT_EQ(collector.left_out(), 500 + SeriesCollector::kForLosses);
}

TEST(SeriesCollector, FindsTheSeriesThatAFindingNames) {
  SeriesCollector collector;
  auto columns = ColumnsNamed({"grad_norm", "train/loss"});
  columns->sites[0].set_layer("layers/3");
  Feed(columns, {"run", 0, 0, {{1.0, 2.0}}}, &collector);
  const auto named = [&](const std::string& series) {
    v1::Finding finding = FindingAt("elsewhere");
    (*finding.mutable_details()->mutable_fields())["series"].set_string_value(series);
    return collector.Find(finding);
  };
  ASSERT_NE(named("train/loss"), nullptr);
  EXPECT_EQ(named("train/loss")->buckets[0].last, 2.0);
  ASSERT_NE(named("layers/3/grad_norm"), nullptr);
  EXPECT_EQ(named("layers/3/grad_norm")->buckets[0].last, 1.0);
  EXPECT_EQ(named("loss"), nullptr);
  EXPECT_NE(collector.Find(FindingAt("grad_norm", "layers/3")), nullptr);
  v1::Finding other_run = FindingAt("train/loss");
  other_run.mutable_site()->set_run("another");
  EXPECT_EQ(collector.Find(other_run), nullptr);
}

TEST(SeriesNames, TheWordLossAtTheEnd) {
  for (const char* name : {"loss", "Loss", "train/loss", "val_loss", "eval.LOSS"})
    EXPECT_TRUE(ReadsAsLoss(name)) << name;
  for (const char* name : {"", "los", "closs", "loss_scale", "gloss", "loss2"})
    EXPECT_FALSE(ReadsAsLoss(name)) << name;
}

TEST(Onset, OfDetailsWhereTheyHaveAStep) {
  v1::Finding finding = FindingAt("loss");
  finding.mutable_site()->set_step_first(3);
  EXPECT_EQ(OnsetOf(finding), 3);
  auto& step = (*finding.mutable_details()->mutable_fields())["step"];
  for (const double wrong : std::vector<double>{0.5, INFINITY, NAN, 1e300}) {
    step.set_number_value(wrong);
    EXPECT_EQ(OnsetOf(finding), 3) << wrong;
  }
  step.set_number_value(41);
  EXPECT_EQ(OnsetOf(finding), 41);
}

}  // namespace
}  // namespace plumbline::audit
