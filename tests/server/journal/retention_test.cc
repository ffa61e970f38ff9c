// Tests which segments retention removes, and that it reports this.
#include "server/journal/retention.h"

#include <gmock/gmock.h>

#include "tests/server/journal/support.h"

namespace plumbline::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kDay = int64_t{86400} * 1000000000;

v1::Batch StepOf(const std::string& run, uint32_t attempt, int64_t step) {
  v1::Batch batch;
  v1::Source& source = *batch.add_sources();
  source.set_run(run);
  source.set_attempt(attempt);
  v1::Evidence& evidence = *batch.add_evidence();
  evidence.set_step(step);
  evidence.mutable_site()->set_op(std::string(300, 'o'));
  v1::SeriesRows& rows = *batch.add_series();
  rows.add_source(0);
  rows.add_step(step);
  for (int i = 0; i < 3; ++i) rows.add_value(i);
  return batch;
}

class RetentionTest : public testing::Test {
 protected:
  void SetUp() override {
    JournalOptions options = folder_.Options();
    options.segments.segment_bytes = 1000;  // a few entries each
    options.unix_ns = [this] { return now_; };
    auto journal = folder_.Open(&counters_, options);
    for (uint64_t s = 1; s <= 20; ++s) {
      now_ = static_cast<int64_t>(s) * kDay;
      Keep(*journal, 3, s, StepOf("run", s / 15, static_cast<int64_t>(s)).SerializeAsString());
    }
    ASSERT_GT(folder_.Segments().size(), 4u);
    auto gaps = GapTable::Open(Path());
    ASSERT_TRUE(gaps.ok());
    gaps_ = std::move(*gaps);
  }
  std::string Path() { return folder_.path() + "/../gaps.plg"; }
  int Apply(JournalRetentionOptions options, uint64_t checkpoint, int64_t now) {
    return JournalRetention(folder_.path(), options, gaps_.get()).Apply(checkpoint, now);
  }

  int64_t now_ = 0;
  Counters counters_;
  JournalFolder folder_;
  std::unique_ptr<GapTable> gaps_;
};

TEST_F(RetentionTest, WithoutLimitsNothingGoes) {
  EXPECT_EQ(Apply({}, 100, 1000 * kDay), 0);
  EXPECT_THAT(gaps_->Of(""), IsEmpty());
}

TEST_F(RetentionTest, OnlyWhatACheckpointKnowsMayGo) {
  JournalRetentionOptions all;
  all.keep_bytes = 1;
  EXPECT_EQ(Apply(all, 0, 0), 0);
  const auto before = folder_.Segments();
  const int removed = Apply(all, before[2].first - 1, 0);
  EXPECT_EQ(removed, 2);
  EXPECT_EQ(folder_.Segments().front().first, before[2].first);
}

TEST_F(RetentionTest, BySizeTheOldestGoesAndIsListed) {
  const auto before = folder_.Segments();
  JournalRetentionOptions half;
  half.keep_bytes = 5000;
  EXPECT_GT(Apply(half, 100, 0), 0);
  uint64_t size = 0;
  for (const Segment& segment : folder_.Segments()) {
    size += std::filesystem::file_size(segment.path);
  }
  EXPECT_LE(size, 5000u);
  const uint64_t oldest = folder_.Segments().front().first;
  const auto gaps = gaps_->Of("run");
  ASSERT_FALSE(gaps.empty());
  EXPECT_EQ(gaps[0].run(), "run");
  EXPECT_EQ(gaps[0].attempt(), 0u);
  EXPECT_EQ(gaps[0].step_first(), 1);
  uint64_t items = 0;
  for (const v1::Gap& gap : gaps) items += gap.items();
  EXPECT_EQ(items, (oldest - 1) * 4) << "one item of evidence and three values a step";
  EXPECT_THAT(gaps[0].reason(), HasSubstr("journal.keep_bytes"));
  // The next process knows the gaps.
  gaps_.reset();
  gaps_ = std::move(*GapTable::Open(Path()));
  EXPECT_THAT(gaps_->Of("run"), SizeIs(gaps.size()));
  EXPECT_THAT(gaps_->Of("another"), IsEmpty());
}

TEST_F(RetentionTest, ByAgeWhatIsWhollyOlderGoes) {
  JournalRetentionOptions ten_days;
  ten_days.keep = std::chrono::hours(240);
  EXPECT_EQ(Apply(ten_days, 100, 5 * kDay), 0);
  EXPECT_GT(Apply(ten_days, 100, 25 * kDay), 0);
  // Entries that were received on day 15 or later exist.
  const Everything all = ReadJournal(folder_.path());
  EXPECT_LE(all.numbers.front(), 15u);
  EXPECT_EQ(all.numbers.back(), 20u);
  EXPECT_THAT(all.lost, IsEmpty()) << "what retention took is no loss";
}

// A crash between the record and the removal: the segment is recorded once.
TEST_F(RetentionTest, ASegmentIsNotedOnce) {
  const Segment first = folder_.Segments()[0];
  const std::string bytes = ReadFile(first.path);
  JournalRetentionOptions one;
  one.keep_bytes = 1;
  const uint64_t last = folder_.Segments()[1].first - 1;
  ASSERT_EQ(Apply(one, last, 0), 1);
  WriteFile(first.path, bytes);
  ASSERT_EQ(Apply(one, last, 0), 1);
  EXPECT_EQ(gaps_->Of("run")[0].items(), last * 4);
}

}  // namespace
}  // namespace plumbline::server
