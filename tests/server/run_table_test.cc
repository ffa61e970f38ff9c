#include "server/judge/run_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

v1::Source Source(uint32_t rank, uint32_t world, uint32_t attempt = 0) {
  return test::SourceOf("r", rank, world, attempt);
}

v1::Batch Batch(const v1::Source& source, bool finished) {
  v1::Batch b = test::BatchOf(source);
  b.add_progress()->set_finished(finished);
  return b;
}

class RunTableTest : public testing::Test {
 protected:
  RunTable::Time At(int s) { return RunTable::Time() + seconds(1000 + s); }
  std::vector<uint32_t> GoneRanks(int s) {
    std::vector<uint32_t> ranks;
    for (const v1::Source& source : table_.TakeGone(At(s))) ranks.push_back(source.rank());
    return ranks;
  }
  RunTable table_{seconds(10)};
};

TEST_F(RunTableTest, ARankIsGoneAfterItsGraceAndOnce) {
  table_.Connected(1, Source(0, 1), At(0), 0);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
  table_.Disconnected(1, Source(0, 1), At(100));
  EXPECT_THAT(GoneRanks(109), IsEmpty());
  EXPECT_THAT(GoneRanks(110), ElementsAre(0));
  EXPECT_THAT(GoneRanks(111), IsEmpty());
  EXPECT_THAT(table_.TakeEnded(At(111)), ElementsAre("r"));
  EXPECT_THAT(table_.TakeEnded(At(112)), IsEmpty());
}

TEST_F(RunTableTest, ARankThatComesBackInTimeIsNotGone) {
  table_.Connected(1, Source(0, 1), At(0), 0);
  table_.Disconnected(1, Source(0, 1), At(1));
  table_.Connected(1, Source(0, 1), At(5), 0);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, AFinishedRankMayLeave) {
  table_.Connected(1, Source(0, 1), At(0), 0);
  table_.Account(1, Batch(Source(0, 1), true), At(1), 0);
  table_.Disconnected(1, Source(0, 1), At(2));
  EXPECT_THAT(table_.TakeEnded(At(2)), ElementsAre("r"));
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, ARunEndsWhenAllItsRanksHave) {
  table_.Connected(1, Source(0, 2), At(0), 0);
  table_.Connected(2, Source(1, 2), At(0), 0);
  table_.Account(1, Batch(Source(0, 2), true), At(1), 0);
  EXPECT_THAT(table_.TakeEnded(At(100)), IsEmpty());
  table_.Disconnected(2, Source(1, 2), At(100));
  EXPECT_THAT(GoneRanks(111), ElementsAre(1));
  EXPECT_THAT(table_.TakeEnded(At(111)), ElementsAre("r"));
}

TEST_F(RunTableTest, ARankThatNeverCameIsWaitedForNoLongerThanOneThatBroke) {
  table_.Connected(1, Source(0, 2), At(0), 0);
  table_.Account(1, Batch(Source(0, 2), true), At(1), 0);
  EXPECT_THAT(table_.TakeEnded(At(10)), IsEmpty());
  EXPECT_THAT(table_.TakeEnded(At(12)), ElementsAre("r"));
}

TEST_F(RunTableTest, ANewProcessOfTheSameRankIsNotEndedByTheOldOnesGrace) {
  table_.Connected(1, Source(0, 1), At(0), 0);
  table_.Disconnected(1, Source(0, 1), At(1));
  table_.Connected(2, Source(0, 1), At(2), 0);
  table_.Disconnected(1, Source(0, 1), At(3));  // late news of the old one
  EXPECT_THAT(GoneRanks(100), IsEmpty());
}

TEST_F(RunTableTest, ALaterAttemptReplacesTheEarlierOnesRanks) {
  table_.Connected(1, Source(0, 2), At(0), 0);
  table_.Connected(2, Source(1, 2), At(0), 0);
  table_.Disconnected(1, Source(0, 2), At(1));
  table_.Connected(3, Source(0, 1, 1), At(2), 0);
  EXPECT_THAT(GoneRanks(100), IsEmpty());
  const auto runs = table_.List();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].attempt(), 1u);
  EXPECT_EQ(runs[0].ranks_seen(), 1u);
  EXPECT_EQ(runs[0].ranks_connected(), 1u);
}

TEST_F(RunTableTest, ARunThatIsOverBeginsAnew) {
  table_.Connected(1, Source(0, 2), At(0), 0);
  table_.Connected(2, Source(1, 2), At(0), 0);
  table_.Account(1, Batch(Source(0, 2), true), At(1), 0);
  table_.Account(2, Batch(Source(1, 2), true), At(1), 0);
  EXPECT_THAT(table_.TakeEnded(At(1)), ElementsAre("r"));
  // Its second life: rank 1's first life must not count for it.
  table_.Connected(3, Source(0, 2), At(2), 0);
  table_.Account(3, Batch(Source(0, 2), true), At(3), 0);
  EXPECT_THAT(table_.TakeEnded(At(4)), IsEmpty());
  table_.Connected(4, Source(1, 2), At(5), 0);
  table_.Account(4, Batch(Source(1, 2), true), At(6), 0);
  EXPECT_THAT(table_.TakeEnded(At(6)), ElementsAre("r"));
}

TEST_F(RunTableTest, OneBatchMayNameTwoAttempts) {
  v1::Batch b;
  *b.add_sources() = Source(0, 1, 0);
  *b.add_sources() = Source(0, 1, 1);
  for (uint32_t s : {0u, 1u}) {
    auto* p = b.add_progress();
    p->set_source(s);
    p->set_finished(true);
    b.add_evidence()->set_source(s);
  }
  table_.Account(1, b, At(0), 0);
  EXPECT_EQ(table_.List()[0].evidence(), 2u);
  EXPECT_EQ(table_.List()[0].ranks_finished(), 1u);
}

}  // namespace
}  // namespace plumbline::server
