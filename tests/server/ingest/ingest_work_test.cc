// The work of ingest for a message is linear in its size. Tests products that blocked everything in
// earlier versions (sources by columns, sources by sources, sets by sets, claims by streams), at
// their largest. The time limits are generous: linear work takes milliseconds, the earlier code
// took seconds to minutes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "server/ingest/name_table.h"
#include "server/stream/batch_checks.h"
#include "server/stream/series_sets.h"
#include "server/stream/stream_table.h"

namespace plumbline::server {
namespace {

using testing::HasSubstr;

constexpr int kMost = 4096;  // sources of a batch

v1::Source SourceOf(const std::string& run, uint32_t rank, uint32_t attempt = 0) {
  v1::Source source;
  source.set_run(run);
  source.set_rank(rank);
  source.set_attempt(attempt);
  return source;
}

v1::Batch ManySources() {
  v1::Batch batch;
  for (uint32_t rank = 0; rank < kMost; ++rank) *batch.add_sources() = SourceOf("run", rank);
  return batch;
}

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(IngestWork, NamesCountOncePerRun) {
  v1::Batch batch = ManySources();
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(1);
  for (int i = 0; i < 65000; ++i) set.add_sites()->set_op("s" + std::to_string(i));
  ASSERT_TRUE(CheckReceived(batch, {}).ok());
  NameTable names(10, 65000);
  EXPECT_LT(Seconds([&] { EXPECT_TRUE(names.Add(batch).ok()); }), 2.0);
  set.add_sites()->set_op("one more");
  EXPECT_FALSE(names.Add(batch).ok());
}

TEST(IngestWork, CausesOfSitesAndDeclarationsAreNamesToo) {
  NameTable names(10, 3);
  v1::Batch batch;
  *batch.add_sources() = SourceOf("run", 0);
  const auto lost = [&](const char* op, const char* cause) {
    v1::Loss& loss = *batch.add_losses();
    loss.set_cause(cause);
    if (*op != '\0') loss.mutable_site()->set_op(op);
  };
  lost("s", "a");
  lost("s", "b");
  EXPECT_TRUE(names.Add(batch).ok());
  batch.add_declarations()->mutable_site()->set_op("c");
  EXPECT_TRUE(names.Add(batch).ok());
  lost("",
       "d");  // without a site: counted separately, so that a run that has used up its names can
              // still report losses
  EXPECT_TRUE(names.Add(batch).ok());
  lost("s", "e");
  EXPECT_THAT(std::string(names.Add(batch).message()), HasSubstr("which is the limit"));
  batch.mutable_losses()->RemoveLast();
  for (int i = 0; i < 63; ++i) lost("", std::to_string(i).c_str());
  EXPECT_TRUE(names.Add(batch).ok());
  lost("", "one more");
  EXPECT_THAT(std::string(names.Add(batch).message()), HasSubstr("which is the limit"));
  batch.mutable_losses(2)->set_cause(std::string(513, 'x'));
  EXPECT_THAT(std::string(CheckReceived(batch, {}).message()), HasSubstr("losses[2].cause: 513"));
}

TEST(IngestWork, ASourceStatesAFewTimesHowFarItIs) {
  v1::Batch batch;
  *batch.add_sources() = SourceOf("run", 0);
  for (int i = 0; i < 64; ++i) batch.add_progress();
  EXPECT_TRUE(CheckReceived(batch, {}).ok());
  batch.add_progress();
  EXPECT_THAT(std::string(CheckReceived(batch, {}).message()),
              HasSubstr("progress: 65 entries for 1 sources, at most 64"));
}

TEST(IngestWork, ABatchSpeaksOfFewRuns) {
  v1::Batch batch;
  for (int i = 0; i < 8; ++i) *batch.add_sources() = SourceOf("run" + std::to_string(i), 0);
  for (int i = 0; i < 8; ++i) *batch.add_sources() = SourceOf("run" + std::to_string(i), 1);
  EXPECT_TRUE(CheckReceived(batch, {}).ok());
  *batch.add_sources() = SourceOf("another", 0);
  EXPECT_THAT(std::string(CheckReceived(batch, {}).message()),
              HasSubstr("sources of 9 runs, at most 8"));
}

TEST(IngestWork, SetsAreFoundNotSearched) {
  v1::Batch batch;
  *batch.add_sources() = SourceOf("run", 0);
  for (uint64_t id = 1; id <= 50000; ++id) {
    v1::SeriesSet& set = *batch.add_series_sets();
    set.set_id(id);
    set.add_sites()->set_op("x");
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(id);
    rows.add_source(0);
    rows.add_step(0);
    rows.add_value(1.0);
  }
  SeriesSets sets;
  std::vector<SetRecord> fresh;
  EXPECT_LT(Seconds([&] {
              EXPECT_TRUE(sets.CheckRows(batch).ok());
              EXPECT_FALSE(sets.Add(batch.series_sets(), kMost, &fresh).ok());
              EXPECT_TRUE(sets.Add(batch.series_sets(), 50000, &fresh).ok());
            }),
            2.0);
  EXPECT_EQ(fresh.size(), 50000u);
}

TEST(IngestWork, RanksAreFoundWhateverTheirOrder) {
  ClaimedRanks ranks;
  const v1::Batch batch = ManySources();
  for (const v1::Source& source : batch.sources()) {
    EXPECT_FALSE(ranks.Has(source));
    EXPECT_EQ(ranks.Add(source), std::nullopt);
  }
  EXPECT_LT(Seconds([&] {
              for (int round = 0; round < 20; ++round) {
                for (int i = kMost; i-- > 0;) ASSERT_TRUE(ranks.Has(batch.sources(i)));
                for (const v1::Source& source : batch.sources()) ASSERT_TRUE(ranks.Has(source));
              }
            }),
            2.0);
  EXPECT_EQ(ranks.size(), size_t{kMost});
  // Another attempt of a rank replaces the earlier one.
  EXPECT_FALSE(ranks.Has(SourceOf("run", 7, 2)));
  EXPECT_EQ(ranks.Add(SourceOf("run", 7, 2))->attempt(), 0u);
  EXPECT_TRUE(ranks.Has(SourceOf("run", 7, 1)));
  EXPECT_FALSE(ranks.Has(SourceOf("other", 7)));
  EXPECT_EQ(ranks.size(), size_t{kMost});
}

// Evicting streams does not visit the claims of all others.
TEST(IngestWork, AStreamThatGoesTakesItsClaimsAlone) {
  constexpr size_t kStreams = 2000;
  StreamTable table(kStreams, {});
  const auto open = [&](uint64_t id, uint32_t ranks) {
    ASSERT_TRUE(table.Open(id).ok());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto run = std::to_string(id);
      ASSERT_TRUE(table.Claim(id, SourceOf(run, rank)).ok());
    }
    table.Closed(id);
  };
  for (uint64_t id = 1; id <= kStreams; ++id) open(id, 100);
  EXPECT_LT(Seconds([&] {
              for (uint64_t id = kStreams + 1; id <= 2 * kStreams; ++id) open(id, 1);
            }),
            2.0);
  EXPECT_EQ(table.size(), kStreams);
  // If two streams claim a rank in turn, it belongs to the last.
  ASSERT_TRUE(table.Open(1).ok());
  ASSERT_TRUE(table.Claim(1, SourceOf("2001", 0)).ok());
  ASSERT_TRUE(table.Open(2001).ok());
  EXPECT_EQ(table.Claim(2001, SourceOf("2001", 0)).code(), absl::StatusCode::kAlreadyExists);
  table.Release(1, SourceOf("2001", 0));
  EXPECT_TRUE(table.Claim(2001, SourceOf("2001", 0)).ok());
}

// If one connection claims endless ranks, by one stream or by many, half of the ranks remain for
// others.
TEST(IngestWork, AConnectionLeavesRanksToOthers) {
  StreamTable table(StreamLimits{.streams = 100, .ranks = 1000}, {});
  uint32_t rank = 0;
  const auto claimed = [&](uint64_t stream, const std::string& run) {
    int count = 0;
    while (table.Claim(stream, SourceOf(run, rank++)).ok()) ++count;
    return count;
  };
  ASSERT_TRUE(table.Open(1, "", "a").ok());
  EXPECT_EQ(claimed(1, "hog"), 500);
  ASSERT_TRUE(table.Open(2, "", "a").ok());
  EXPECT_EQ(claimed(2, "hog-2"), 0);
  ASSERT_TRUE(table.Open(3, "", "b").ok());
  EXPECT_EQ(claimed(3, "hog-3"), 250);
  ASSERT_TRUE(table.Open(4, "", "c").ok());
  EXPECT_TRUE(table.Claim(4, SourceOf("honest", 0)).ok());
  // Ranks that a connection has released, or that it had when it closed, do not count.
  for (uint32_t r = 0; r < 300; ++r) table.Release(1, SourceOf("hog", r));
  EXPECT_GT(claimed(2, "hog-2"), 100);
  table.Closed(1);
  table.Closed(2);
  ASSERT_TRUE(table.Open(5, "", "a").ok());
  EXPECT_GT(claimed(5, "again"), 100);
}

// Numbers with the same remainder for every prime size of a table cause no collisions.
TEST(IngestWork, NumbersOfStreamsCannotBeChosenToCollide) {
  StreamTable table(40000, {});
  EXPECT_LT(Seconds([&] {
              uint64_t id = 0;
              for (int i = 0; i < 40000; ++i) {
                id += uint64_t{52583} * 26267 * 13101;  // sizes of libstdc++'s tables
                ASSERT_TRUE(table.Open(id).ok());
              }
            }),
            2.0);
}

}  // namespace
}  // namespace plumbline::server
