// A store that was lost, or replaced by an older copy, is filled with the values that the journal
// still has. It reports the values that the journal no longer has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "audit/live/client.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RebuildTest : public testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }
  std::string Store() const { return folder_.File("data/store.sqlite"); }
  void Start() {
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{
        "--data", folder_.File("data"), "--grace", "60", "--config",
        folder_.Write(
            "plumbd.toml",
            "[journal]\nsync = \"never\"\npack = false\nsegment_bytes = 4096\ncommit_bytes = 1\n"
            "keep_bytes = 60000\n[checkpoint]\nseconds = 0.05\nbytes = 4096\n"
            "[ingest]\nack_seconds = 0.02\n")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  // Sends steps of two ranks of run "run" whose values are their numbers.
  void Train(int64_t first, int64_t last) {
    const std::vector<v1::Source> ranks = {SourceOf("run", 0, 2), SourceOf("run", 1, 2)};
    AgentStream agent(*server_, 7, ranks, next_);
    for (int64_t step = first; step <= last; ++step) {
      v1::Batch batch;
      for (const v1::Source& rank : ranks) *batch.add_sources() = rank;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        v1::Evidence& e = *batch.add_evidence();
        e.set_source(rank);
        e.set_step(step);
        e.mutable_site()->set_op("loss");
        e.mutable_scalar()->set_value(static_cast<double>(step) + 0.25 * rank);
        v1::Progress& progress = *batch.add_progress();
        progress.set_source(rank);
        progress.set_any_step(true);
        progress.set_newest_step(step);
        progress.set_complete_through(step);
      }
      ASSERT_TRUE(agent.Send(batch, next_++));
    }
    ASSERT_TRUE(agent.Acknowledged(next_ - 1));
    ASSERT_TRUE(Eventually([&] { return Values().count(last) == 1; }));
  }
  // Retention follows checkpoints, which follow data. Returns the last step; one after 20,000
  // fails.
  int64_t TrainUntilEntriesAreRemoved() {
    int64_t last = 1000;
    Train(1, last);
    for (; fs::exists(folder_.File("data/journal/00000000000000000001.plj")); last += 100) {
      if (last > 20'000) {
        ADD_FAILURE() << "no entry was removed";
        break;
      }
      Train(last + 1, last + 100);
    }
    return last;
  }
  // Returns the values of rank 1, by step.
  std::map<int64_t, double> Values() {
    audit::Client client(server_->address());
    v1::QuerySeriesRequest request;
    request.set_run("run");
    request.set_max_cells(100'000);
    request.add_rank(1);
    const auto answer = client.QuerySeries(request, 30);
    std::map<int64_t, double> values;
    if (!answer.ok() || answer->series().empty()) return values;
    const v1::SeriesColumns& c = answer->series(0);
    for (int i = 0; i < c.step_size(); ++i) values[c.step(i)] = c.mean(i);
    return values;
  }
  static double Whole(int64_t step) { return static_cast<double>(step) + 0.25; }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  // Stops the server with a checkpoint of all closed steps.
  void Stop() { ASSERT_EQ(server_->Stop(), 0); }
  bool Rebuilt() {
    return Eventually([&] {
      return server_->process().errors().find("the store is rebuilt") != std::string::npos;
    });
  }
  void RemoveStore() const {
    for (const char* part : {"", "-wal", "-shm"}) fs::remove(Store() + part);
  }
  // Returns the last step of the gap that the rebuilt store reports; 0 if none.
  int64_t LostThrough() {
    const auto run = server_->Run("run");
    int64_t last = 0;
    for (int i = 0; run && i < run->gaps_size(); ++i) {
      if (run->gaps(i).reason().find("store-rebuilt") == 0)
        last = std::max<int64_t>(last, run->gaps(i).step_last());
    }
    return last;
  }
  // Expects all values from `first` to `last`, once, and no others.
  void ExpectValues(int64_t first, int64_t last) {
    const std::map<int64_t, double> values = Values();
    ASSERT_FALSE(values.empty());
    EXPECT_EQ(values.begin()->first, first);
    EXPECT_EQ(values.rbegin()->first, last);
    EXPECT_EQ(values.size(), static_cast<size_t>(last - first + 1));
    for (const auto& [step, value] : values) ASSERT_EQ(value, Whole(step)) << step;
    const auto run = server_->Run("run");
    ASSERT_TRUE(run);
    EXPECT_EQ(run->samples(), 2 * static_cast<uint64_t>(last - first + 1));
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  uint64_t next_ = 1;
};

TEST_F(RebuildTest, OneThatIsGoneGetsBackWhatTheJournalStillHas) {
  Start();
  int64_t last = TrainUntilEntriesAreRemoved();
  Stop();
  RemoveStore();
  Start();
  ASSERT_TRUE(Rebuilt());
  const int64_t lost = LostThrough();
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, last - 10);
  Train(last + 1, last + 100);
  last += 100;
  ExpectValues(lost + 1, last);
  Stop();
  Start();  // it stays so
  ExpectValues(lost + 1, last);
  EXPECT_EQ(LostThrough(), lost);
  EXPECT_THAT(server_->process().errors(), testing::Not(HasSubstr("are read again")));
}

TEST_F(RebuildTest, AnOlderCopyGetsWhatItLacks) {
  Start();
  Train(1, 600);
  Stop();
  fs::copy(Store(), folder_.File("older"));
  Start();
  Train(601, 700);
  Stop();
  RemoveStore();
  fs::copy(folder_.File("older"), Store());
  Start();
  ASSERT_TRUE(Rebuilt());
  EXPECT_EQ(LostThrough(), 0) << "the journal has all that was missing";
  Train(701, 800);
  ExpectValues(1, 800);
}

TEST_F(RebuildTest, OneThatWasKilledMeanwhileGoesOn) {
  Start();
  int64_t last = TrainUntilEntriesAreRemoved();
  Stop();
  RemoveStore();
  for (const int wait : {0, 20, 60, 150}) {
    Start();
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    Train(last + 1, last + 20);
    last += 20;
    Kill();
  }
  Start();
  Eventually([&] { return Values().count(last) == 1; });
  Train(last + 1, last + 5);
  last += 5;
  const auto whole = [&] {
    const auto run = server_->Run("run");
    return run && run->samples() == 2 * static_cast<uint64_t>(last - LostThrough());
  };
  EXPECT_TRUE(Eventually(whole));
  ExpectValues(LostThrough() + 1, last);
}

// The twin: nothing is missing, so nothing is read again.
TEST_F(RebuildTest, OneThatIsWholeIsLeftAlone) {
  Start();
  Train(1, 1000);
  Stop();
  Start();
  ExpectValues(1, 1000);
  EXPECT_EQ(LostThrough(), 0);
  EXPECT_THAT(server_->process().errors(), testing::Not(HasSubstr("are read again")));
}

}  // namespace
}  // namespace plumbline::test
