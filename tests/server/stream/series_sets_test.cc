#include "server/stream/series_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void AddSet(v1::Batch& batch, uint64_t id, std::vector<std::string> ops) {
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(id);
  for (const std::string& op : ops) set.add_sites()->set_op(op);
}

void AddRows(v1::Batch& batch, uint64_t set, int rows, int values) {
  v1::SeriesRows& r = *batch.add_series();
  r.set_set(set);
  r.add_source(0);
  for (int i = 0; i < rows; ++i) r.add_step(i);
  for (int i = 0; i < values; ++i) r.add_value(i);
}

v1::Batch Batch() {
  v1::Batch batch;
  batch.add_sources()->set_run("r");
  return batch;
}

TEST(SeriesSets, RowsMustFitASetThatWasDeclared) {
  SeriesSets sets;
  v1::Batch batch = Batch();
  AddRows(batch, 7, 2, 6);
  EXPECT_THAT(std::string(sets.CheckRows(batch).message()), HasSubstr("was not declared"));
  AddSet(batch, 7, {"a", "b", "c"});  // in the same batch
  EXPECT_TRUE(sets.CheckRows(batch).ok());
  std::vector<SetRecord> fresh;
  ASSERT_TRUE(sets.Add(batch.series_sets(), 10, &fresh).ok());
  EXPECT_THAT(fresh, SizeIs(1));
  v1::Batch later = Batch();
  AddRows(later, 7, 3, 9);
  EXPECT_TRUE(sets.CheckRows(later).ok());
  AddRows(later, 7, 2, 5);
  EXPECT_THAT(std::string(sets.CheckRows(later).message()),
              HasSubstr("series[1].value: 5 values for 2 rows of 3 series, expected 6"));
  // A restarted server has the set too.
  SeriesSets restored;
  restored.Restore(fresh[0].second);
  later.mutable_series()->RemoveLast();
  EXPECT_TRUE(restored.CheckRows(later).ok());
}

TEST(SeriesSets, ARepeatedSetIsNotNewAndAChangedOneIsRefused) {
  SeriesSets sets;
  v1::Batch batch = Batch();
  AddSet(batch, 7, {"a"});
  AddSet(batch, 7, {"a"});
  std::vector<SetRecord> fresh;
  ASSERT_TRUE(sets.Add(batch.series_sets(), 10, &fresh).ok());
  EXPECT_THAT(fresh, SizeIs(1));
  fresh.clear();
  ASSERT_TRUE(sets.Add(batch.series_sets(), 10, &fresh).ok());
  EXPECT_THAT(fresh, IsEmpty());
  v1::Batch other = Batch();
  AddSet(other, 8, {"x"});
  AddSet(other, 7, {"b"});
  EXPECT_FALSE(sets.Add(other.series_sets(), 10, &fresh).ok());
  EXPECT_EQ(sets.size(), 1u) << "all or none";
  EXPECT_THAT(fresh, IsEmpty());
}

TEST(SeriesSets, AreBounded) {
  SeriesSets sets;
  v1::Batch batch = Batch();
  for (uint64_t id = 1; id <= 4; ++id) AddSet(batch, id, {"a"});
  std::vector<SetRecord> fresh;
  EXPECT_THAT(std::string(sets.Add(batch.series_sets(), 3, &fresh).message()),
              HasSubstr("4 series sets on one stream, at most 3"));
  EXPECT_TRUE(sets.Add(batch.series_sets(), 4, &fresh).ok());
}

TEST(SeriesSets, RowsAreCheckedByThemselvesOnArrival) {
  const struct {
    std::function<void(v1::Batch&)> damage;
    const char* message;
  } cases[] = {
      {[](auto& b) { b.mutable_series(0)->set_source(0, 3); }, "series[0].source: 3"},
      {[](auto& b) { b.mutable_series(0)->add_source(0); }, "series[0].source: 2 entries for 3"},
      {[](auto& b) { b.mutable_series(0)->set_step(1, -1); }, "series[0].step: -1"},
      {[](auto& b) { b.mutable_series(0)->set_absent("a"); }, "1 bytes for 9 values, expected 2"},
      {[](auto& b) { b.mutable_series_sets(0)->set_id(0); }, "series_sets[0].id: 0"},
      {[](auto& b) { b.mutable_series_sets(0)->clear_sites(); }, "0 series, expected 1"},
      {[](auto& b) { b.mutable_series_sets(0)->mutable_sites(1)->Clear(); },
       "series_sets[0].sites[1]: names neither"},
      {[](auto& b) { b.mutable_series_sets(0)->mutable_sites(1)->set_op(std::string(600, 'x')); },
       "op: 600 bytes"},
  };
  v1::Batch good = Batch();
  AddSet(good, 7, {"a", "b", "c"});
  AddRows(good, 7, 3, 9);
  good.mutable_series(0)->set_absent(std::string(2, '\1'));
  EXPECT_TRUE(CheckReceived(good, {}).ok());
  for (const auto& c : cases) {
    v1::Batch bad = good;
    c.damage(bad);
    EXPECT_THAT(std::string(CheckReceived(bad, {}).message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace plumbline::server
