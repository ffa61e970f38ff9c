// Old samples are removed from the journal, and nothing else.
#include "server/samples/sample_retention.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "server/journal/segment_packer.h"
#include "tests/server/journal/support.h"

namespace plumbline::server {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int64_t kDay = int64_t{86400} * 1000000000;

v1::Batch SampledStep(int64_t step) {
  v1::Batch batch;
  batch.add_sources()->set_run("run");
  v1::Evidence& e = *batch.add_evidence();
  e.set_step(step);
  e.mutable_site()->set_layer(step % 2 == 0 ? "layers.0" : "layers.1");
  e.mutable_site()->set_op("routing");
  e.mutable_routing()->mutable_summary()->set_tokens(7);
  e.mutable_routing()->mutable_sample()->mutable_sequence_id()->set_data(std::string(300, 's'));
  v1::SeriesRows& rows = *batch.add_series();
  rows.add_source(0);
  rows.add_step(step);
  rows.add_value(static_cast<double>(step));
  return batch;
}

class SampleRetentionTest : public testing::Test {
 protected:
  // One step per day, from day 1 to 20, several in a segment.
  void SetUp() override {
    JournalOptions options = folder_.Options();
    options.segments.segment_bytes = 1000;
    options.unix_ns = [this] { return now_; };
    auto journal = folder_.Open(&counters_, options);
    for (uint64_t s = 1; s <= 20; ++s) {
      now_ = static_cast<int64_t>(s) * kDay;
      Keep(*journal, 3, s, SampledStep(static_cast<int64_t>(s)).SerializeAsString());
    }
    journal.reset();
    ASSERT_GT(folder_.Segments().size(), 4u);
    for (const std::string& body : ReadJournal(folder_.path()).bodies) before_.push_back(body);
    options_.keep = std::chrono::hours(24 * 14);
    options_.needed = [this] { return needed_; };
    options_.unix_ns = [this] { return now_; };
    options_.now = [this] { return steady_; };
  }

  void Make(bool pack = true) {
    PackerOptions options;
    options.directory = folder_.path();
    options.pack = pack;
    options.settled = [this] { return settled_; };
    options.editor = std::make_shared<SampleRetention>(options_, &counters_);
    packer_ = std::make_unique<SegmentPacker>(options, &files_);
  }
  // Makes two checks far enough apart.
  void Look() {
    packer_->Round();
    steady_ += std::chrono::minutes(2);
    packer_->Round();
  }
  // Returns the steps that still have samples; everything else must be unchanged.
  std::vector<int64_t> Sampled() {
    std::vector<int64_t> steps;
    const Everything all = ReadJournal(folder_.path());
    EXPECT_TRUE(all.lost.empty());
    EXPECT_EQ(all.bodies.size(), before_.size());
    for (size_t i = 0; i < all.bodies.size(); ++i) {
      v1::Batch was, is;
      EXPECT_TRUE(was.ParseFromString(before_[i]) && is.ParseFromString(all.bodies[i]));
      if (is.evidence(0).routing().has_sample()) steps.push_back(is.evidence(0).step());
      for (v1::Batch* batch : {&was, &is}) {
        v1::Routing& routing = *batch->mutable_evidence(0)->mutable_routing();
        routing.clear_sample();
        routing.clear_no_sample_reason();
      }
      EXPECT_EQ(was.SerializeAsString(), is.SerializeAsString());
    }
    return steps;
  }

  int64_t now_ = 0;
  uint64_t settled_ = ~uint64_t{0};
  std::chrono::steady_clock::time_point steady_{};
  Counters counters_;
  JournalFolder folder_;
  Mutex files_;
  NeededSamples needed_;
  SampleRetentionOptions options_;
  std::unique_ptr<SegmentPacker> packer_;
  std::vector<std::string> before_;
};

TEST_F(SampleRetentionTest, OldSamplesGoAndNothingElse) {
  Make();
  now_ = 25 * kDay;
  Look();
  const auto sampled = Sampled();
  ASSERT_FALSE(sampled.empty());
  // A segment of some days is old if it ended 14 days ago.
  EXPECT_GE(sampled.front(), 9);
  EXPECT_LE(sampled.front(), 13);
  EXPECT_EQ(sampled.back(), 20);
  EXPECT_EQ(counters_.samples_expired, static_cast<uint64_t>(sampled.front() - 1));
  for (const std::string& body : ReadJournal(folder_.path()).bodies) {
    v1::Batch batch;
    batch.ParseFromString(body);
    const v1::Routing& routing = batch.evidence(0).routing();
    EXPECT_EQ(routing.no_sample_reason().empty(), routing.has_sample());
    EXPECT_EQ(batch.losses_size(), 0) << "that they were removed is no loss of the run";
  }
  Look();
  EXPECT_EQ(Sampled(), sampled) << "once is enough";
  EXPECT_EQ(counters_.samples_expired, static_cast<uint64_t>(sampled.front() - 1));
}

// After a restart the files show that they were rewritten.
TEST_F(SampleRetentionTest, ARestartDoesNotWriteAgain) {
  Make();
  now_ = 100 * kDay;
  Look();
  const uint64_t expired = counters_.samples_expired;
  EXPECT_GT(expired, 10u);
  Make();
  Look();
  EXPECT_EQ(counters_.samples_expired, expired);
}

TEST_F(SampleRetentionTest, TheNewestSegmentAndWhatIsNotSettledStay) {
  const auto segments = folder_.Segments();
  settled_ = segments[2].first - 1;
  Make();
  now_ = 1000 * kDay;
  Look();
  EXPECT_EQ(Sampled().front(), static_cast<int64_t>(segments[2].first));
  settled_ = ~uint64_t{0};
  Look();
  EXPECT_EQ(Sampled().front(), static_cast<int64_t>(segments.back().first));
}

TEST_F(SampleRetentionTest, WhatAFindingWasJudgedFromStays) {
  v1::Finding finding;
  finding.set_rule("causality/moe-future-leak");
  finding.mutable_site()->set_run("run");
  finding.mutable_site()->set_layer("layers.0");
  finding.mutable_site()->set_op("routing");
  finding.mutable_site()->set_step_first(2);
  finding.mutable_site()->set_step_last(6);
  needed_.Add(finding);
  v1::Finding other = finding;
  other.mutable_site()->set_run("another");
  other.mutable_site()->set_step_last(100);
  needed_.Add(other);
  v1::Finding whole;  // about the run, from losses: needs no samples
  whole.set_rule("meta/data-loss");
  whole.mutable_site()->set_run("run");
  whole.mutable_site()->set_step_last(100);
  needed_.Add(whole);
  Make();
  now_ = 25 * kDay;
  Look();
  auto sampled = Sampled();
  sampled.erase(std::remove_if(sampled.begin(), sampled.end(), [](int64_t s) { return s > 8; }),
                sampled.end());
  EXPECT_THAT(sampled, ElementsAre(2, 4, 6));
}

// A clock that is years ahead for one check, or for several within a minute.
TEST_F(SampleRetentionTest, AClockThatJumpsRemovesNothing) {
  Make(false);
  now_ = 10'000 * kDay;
  packer_->Round();
  steady_ += std::chrono::seconds(30);
  packer_->Round();
  now_ = 21 * kDay;  // it is correct again
  steady_ += std::chrono::minutes(5);
  packer_->Round();
  EXPECT_EQ(Sampled().front(), 1 + static_cast<int64_t>(counters_.samples_expired));
  EXPECT_LE(counters_.samples_expired, 7u) << "what is old on day 21";
  const uint64_t expired = counters_.samples_expired;
  now_ = 10'000 * kDay;  // and wrong once more
  packer_->Round();
  EXPECT_EQ(counters_.samples_expired, expired);
}

TEST_F(SampleRetentionTest, WithoutALimitTheyStay) {
  options_.keep = {};
  Make();
  now_ = 1000 * kDay;
  Look();
  EXPECT_EQ(Sampled().size(), 20u);
}

// Damage is listed as before; the segment stays unchanged.
TEST_F(SampleRetentionTest, ADamagedSegmentIsLeftAlone) {
  const auto segments = folder_.Segments();
  std::string bytes = ReadFile(segments[1].path);
  bytes[bytes.size() / 2] ^= 0x10;
  WriteFile(segments[1].path, bytes);
  const auto lost = ReadJournal(folder_.path()).lost.size();
  Make();
  now_ = 1000 * kDay;
  Look();
  EXPECT_EQ(ReadFile(segments[1].path), bytes);
  EXPECT_EQ(ReadJournal(folder_.path()).lost.size(), lost);
  EXPECT_GT(counters_.samples_expired, 0u) << "the others are written again";
}

// Checks that samples of a slow run are removed at most a day late.
TEST_F(SampleRetentionTest, ASegmentTakesEntriesForADay) {
  JournalFolder slow;
  JournalOptions options = slow.Options();
  options.segments.segment_age = std::chrono::hours(24);
  options.unix_ns = [this] { return now_; };
  auto journal = slow.Open(&counters_, options);
  for (uint64_t s = 1; s <= 10; ++s) {
    now_ = static_cast<int64_t>(s) * kDay / 4;
    Keep(*journal, 3, s, SampledStep(static_cast<int64_t>(s)).SerializeAsString());
  }
  journal.reset();
  EXPECT_EQ(slow.Segments().size(), 3u) << "begun at entries 1, 5 and 9";
  EXPECT_EQ(ReadJournal(slow.path()).bodies.size(), 10u);
}

}  // namespace
}  // namespace plumbline::server
