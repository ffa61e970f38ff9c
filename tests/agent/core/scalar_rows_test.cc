// Scalars are sent as rows. Those that cannot be sent as rows are sent as evidence. No scalar is
// sent twice, and none is lost.
#include "agent/core/sites/scalar_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "transport/batch_edit.h"

namespace plumbline::agent {
namespace {

using namespace transport;  // NOLINT: what leaves

using Key = std::tuple<std::string, int64_t, uint32_t>;  // op, step, call

class Rows : public ::testing::Test {
 protected:
  const Site* SiteOf(const std::string& op) {
    return sites_.FindOrAdd(SiteKind::kScalar, "", op, 0);
  }
  void Add(int64_t step, const std::string& op, double value, uint32_t call = 0) {
    rows_.Add(step, {SiteOf(op), call, 0, value});
  }
  // The values in a batch, by name.
  std::map<Key, double> Values(const v1::Batch& batch) {
    std::map<Key, double> values;
    for (const v1::Evidence& e : batch.evidence())
      EXPECT_TRUE(
          values.emplace(Key{e.site().op(), e.step(), e.call()}, e.scalar().value()).second);
    for (const v1::SeriesRows& rows : batch.series()) {
      const auto set = registry_->Find(rows.set());
      EXPECT_TRUE(set.has_value());
      EXPECT_EQ(rows.value_size(), rows.step_size() * set->sites_size());
      for (int i = 0; i < rows.value_size(); ++i) {
        const Key key{set->sites(i % set->sites_size()).op(), rows.step(i / set->sites_size()), 0};
        EXPECT_TRUE(values.emplace(key, rows.value(i)).second);
      }
    }
    return values;
  }

  std::shared_ptr<SeriesRegistry> registry_ = std::make_shared<SeriesRegistry>();
  SiteTable sites_;
  ScalarRows rows_{registry_};
  v1::Batch batch_;
};

TEST_F(Rows, AListIsDeclaredOnceWhateverTheOrderOfLogging) {
  Add(0, "b", 1);
  Add(0, "a", 2);
  rows_.EndSteps(0, &batch_);
  Add(1, "a", 3);
  Add(1, "b", 4);
  rows_.EndSteps(1, &batch_);
  ASSERT_EQ(batch_.series_sets_size(), 1);
  EXPECT_EQ(batch_.series_sets(0).sites(0).op(), "a");
  ASSERT_EQ(batch_.series_size(), 1);
  EXPECT_EQ(batch_.series(0).value(0), 2);
  EXPECT_EQ(batch_.series(0).value(1), 1);
  EXPECT_EQ(batch_.series(0).value(2), 3);
  v1::Batch next;
  Add(2, "a", 5);
  Add(2, "b", 6);
  rows_.EndSteps(2, &next);
  EXPECT_EQ(next.series_sets_size(), 0);
}

TEST_F(Rows, AStepThatGoesOnLeavesAsEvidence) {
  Add(4, "a", 1);
  Add(5, "a", 2);
  rows_.EndSteps(4, &batch_);
  rows_.Flush(&batch_);
  EXPECT_TRUE(rows_.empty());
  EXPECT_EQ(batch_.evidence_size(), 1);
  EXPECT_EQ(Values(batch_), (std::map<Key, double>{{{"a", 4, 0}, 1}, {{"a", 5, 0}, 2}}));
}

TEST_F(Rows, SecondCallsAndListsWithoutANumberAreEvidence) {
  std::mt19937_64 rng(3);
  std::map<Key, double> expected;
  for (int64_t step = 0; step < 500; ++step) {
    std::vector<int> order(10);
    for (int i = 0; i < 10; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), rng);
    order.resize(1 + rng() % 9);
    for (const int i : order) {
      const std::string op = "s" + std::to_string(i);
      for (uint32_t call = 0; call < 1 + rng() % 2; ++call) {
        const auto value = static_cast<double>(rng() % 1000);
        Add(step, op, value, call);
        expected[{op, step, call}] = value;
      }
    }
    if (rng() % 3 == 0) rows_.EndSteps(step, &batch_);
  }
  rows_.EndSteps(500, &batch_);
  EXPECT_EQ(Values(batch_), expected);
  EXPECT_EQ(registry_->All().size(), SeriesRegistry::kMaxSets);
  EXPECT_EQ(Seal(batch_).items, expected.size());
}

TEST_F(Rows, WhatIsDroppedIsCountedByName) {
  Add(7, "a", 1);
  Add(7, "b", 2);
  Add(8, "a", 3);
  rows_.EndSteps(8, &batch_);
  batch_.clear_series_sets();                                    // declared in an earlier batch
  batch_.mutable_series(0)->set_absent(std::string(1, '\x01'));  // "a" of step 7 is missing
  DropEvidence(&batch_, "queue-full", registry_->All());
  EXPECT_EQ(batch_.series_size(), 0);
  std::map<std::string, uint64_t> lost;
  for (const v1::Loss& loss : batch_.losses()) lost[loss.site().op()] += loss.count();
  EXPECT_EQ(lost, (std::map<std::string, uint64_t>{{"a", 1}, {"b", 1}}));
}

}  // namespace
}  // namespace plumbline::agent
