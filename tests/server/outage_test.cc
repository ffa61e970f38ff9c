// Runs that were unreachable for shorter and for longer than the grace return on the same streams.
// Every acknowledged value is in the store once, and a NaN after the return is found.
// tests/server/journal/before_sets_stay holds files of an older build, which lost them: a journal
// with such a return, and a data directory from before the return. To record:
//   PLUMB_RECORD_WITH=OLDER/plumbd PLUMB_RECORD_TO=DIR server_outage_test
//       --gtest_also_run_disabled_tests --gtest_filter=*Records*
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using std::chrono::milliseconds;

constexpr char kRun[] = "away";
constexpr uint64_t kSet = 1;

v1::Batch RowStep(const v1::Source& source, int64_t step, double loss, bool declare) {
  v1::Batch batch = BatchOf(source);
  if (declare) {
    v1::SeriesSet& set = *batch.add_series_sets();
    set.set_id(kSet);
    set.add_sites()->set_op("loss");
    set.add_sites()->set_op("grad_norm");
  }
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(kSet);
  rows.add_source(0);
  rows.add_step(step);
  rows.add_value(loss);
  rows.add_value(1.0 + static_cast<double>(step % 7));
  AddProgress(&batch, step);
  return batch;
}

// One rank. It numbers its batches, and keeps those that were not acknowledged.
class Rank {
 public:
  Rank(uint32_t rank, uint32_t world, uint32_t attempt = 0, int64_t first = 0)
      : source_(SourceOf(kRun, rank, world, attempt)),
        stream_id_(9000 + 100 * attempt + rank),
        step_(first) {}

  // Makes steps, also while it is away; they are sent when it returns.
  void Make(int steps, double loss = 1.0) {
    for (int i = 0; i < steps; ++i) made_.push_back(RowStep(source_, step_++, loss, made_.empty()));
  }
  void SendGoodbye() { made_.push_back(Goodbye(source_, step_ - 1)); }

  void Deliver(const Plumbd& server) {
    if (stream_ == nullptr) Connect(server);
    for (; sent_ < made_.size(); ++sent_) ASSERT_TRUE(stream_->Send(made_[sent_], sent_ + 1));
    ASSERT_TRUE(stream_->Acknowledged(made_.size())) << "rank " << source_.rank();
  }
  void Break() {
    if (stream_) stream_->Break();
    stream_.reset();
  }
  int64_t steps() const { return step_; }
  // Returns the number of values of its rows that must be in the store.
  uint64_t values() const {
    uint64_t values = 0;
    for (const v1::Batch& batch : made_) values += batch.series().empty() ? 0 : 2;
    return values;
  }

 private:
  void Connect(const Plumbd& server) {
    stream_ = std::make_unique<AgentStream>(server, stream_id_, std::vector<v1::Source>{source_});
    uint64_t held = 0;
    ASSERT_TRUE(stream_->Welcomed(&held));
    sent_ = held;
  }

  const v1::Source source_;
  const uint64_t stream_id_;
  int64_t step_;
  std::vector<v1::Batch> made_;
  uint64_t sent_ = 0;
  std::unique_ptr<AgentStream> stream_;
};

class OutageTest : public ::testing::Test {
 protected:
  void Start(const std::string& program = "") {
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--grace", "1"},
        std::vector<std::string>{}, program);
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }

  uint64_t Stored() {
    const auto stub = v1::Query::NewStub(server_->Channel());
    grpc::ClientContext context;
    v1::ListSeriesRequest request;
    request.set_run(kRun);
    v1::ListSeriesResponse response;
    if (!stub->ListSeries(&context, request, &response).ok()) return 0;
    uint64_t samples = 0;
    for (const v1::SeriesInfo& info : response.series()) samples += info.samples();
    return samples;
  }

  bool RunIsOver() {
    return Eventually([&] {
      return server_->process().errors().find("run \"away\": over") != std::string::npos;
    });
  }

  void ExpectAllStored(const std::vector<Rank*>& ranks) {
    uint64_t expected = 0;
    for (const Rank* rank : ranks) expected += rank->values();
    uint64_t stored = 0;
    EXPECT_TRUE(Eventually([&] { return (stored = Stored()) == expected; }))
        << stored << " of " << expected << " values are stored\n"
        << server_->process().errors();
    const auto run = server_->Run(kRun);
    ASSERT_TRUE(run);
    EXPECT_EQ(run->lost(), 0u) << run->ShortDebugString();
  }

  void ExpectNanFound() {
    EXPECT_TRUE(Eventually([&] {
      return !server_->Incidents(kRun, "health/loss-non-finite").empty();
    })) << "the NaN was not found";
  }

  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

// `away`: ranks 0 .. away - 1 of a world of two. `restart`: the server is killed meanwhile.
struct Outage {
  const char* name;
  double graces;
  uint32_t away;
  int times;
  bool restart;
};

class OutageFamily : public OutageTest, public ::testing::WithParamInterface<Outage> {};

TEST_P(OutageFamily, EveryAcknowledgedValueIsStoredAndANanIsFound) {
  const Outage& outage = GetParam();
  Start();
  Rank a(0, 2), b(1, 2);
  const auto deliver = [&] {
    a.Deliver(*server_);
    b.Deliver(*server_);
  };
  a.Make(20);
  b.Make(20);
  deliver();
  for (int i = 0; i < outage.times; ++i) {
    a.Break();
    if (outage.away > 1 || outage.restart) b.Break();
    a.Make(5);
    b.Make(5);
    if (outage.away == 1 && !outage.restart) b.Deliver(*server_);
    std::this_thread::sleep_for(milliseconds(static_cast<int>(outage.graces * 1000)));
    if (outage.graces > 2 && outage.away == 2 && i == 0) {
      EXPECT_TRUE(RunIsOver());
    }
    if (outage.restart) {
      Kill();
      Start();
    }
    deliver();
  }
  a.Make(5);
  b.Make(5);
  a.Make(1, kNan);
  b.Make(1);
  a.Make(5);
  b.Make(5);
  deliver();
  ExpectAllStored({&a, &b});
  ExpectNanFound();
  a.SendGoodbye();
  b.SendGoodbye();
  deliver();
  ExpectAllStored({&a, &b});
  // After another restart the state is the same.
  Kill();
  Start();
  ExpectAllStored({&a, &b});
  ExpectNanFound();
}

INSTANTIATE_TEST_SUITE_P(All, OutageFamily,
                         ::testing::Values(Outage{"HalfTheGraceAll", 0.5, 2, 1, false},
                                           Outage{"TheGraceAll", 1, 2, 1, false},
                                           Outage{"ThreeGracesAll", 3, 2, 1, false},
                                           Outage{"ThreeGracesOne", 3, 1, 1, false},
                                           Outage{"ThreeTimesAll", 2.5, 2, 3, false},
                                           Outage{"AllAndARestart", 2.5, 2, 1, true}),
                         [](const auto& param) { return param.param.name; });

// Evidence in the same batch as rows is judged, too.
TEST_F(OutageTest, OneRankAloneComesBackAndNothingIsLost) {
  Start();
  Rank a(0, 1);
  a.Make(30);
  a.Deliver(*server_);
  a.Break();
  ASSERT_TRUE(RunIsOver());
  a.Make(10);
  a.Make(1, kNan);
  a.Make(10);
  a.Deliver(*server_);
  ExpectAllStored({&a});
  ExpectNanFound();
}

// ---- files of an older build --------------------------------------------------------------------

namespace fs = std::filesystem;
constexpr char kRecorded[] = PLUMBLINE_SOURCE_DIR "/tests/server/journal/before_sets_stay";
constexpr int kBefore = 30, kAfter = 20;  // the return

class OlderBuild : public OutageTest {
 protected:
  void TakeRecorded(const char* name) {
    fs::copy(std::string(kRecorded) + "/" + name, folder_.File("data"),
             fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(folder_.File("data")))
      fs::permissions(entry.path(), fs::perms::group_all | fs::perms::others_all,
                      fs::perm_options::remove);
    fs::permissions(folder_.File("data"), fs::perms::owner_all);
  }
  static void MakeAfter(Rank* rank) {
    rank->Make(kAfter / 2);
    rank->Make(1, kNan);
    rank->Make(kAfter / 2);
  }
};

TEST_F(OlderBuild, DISABLED_Records) {
  const char* program = std::getenv("PLUMB_RECORD_WITH");
  const char* to = std::getenv("PLUMB_RECORD_TO");
  ASSERT_TRUE(program != nullptr && to != nullptr);
  Start(program);
  Rank a(0, 1);
  a.Make(kBefore);
  a.Deliver(*server_);
  a.Break();
  ASSERT_TRUE(RunIsOver());
  EXPECT_EQ(server_->Stop(), 0);
  fs::create_directories(to);
  fs::copy(folder_.File("data"), std::string(to) + "/over", fs::copy_options::recursive);
  Start(program);
  MakeAfter(&a);
  a.Deliver(*server_);
  Kill();
  fs::create_directories(std::string(to) + "/returned");
  fs::copy(folder_.File("data") + "/journal", std::string(to) + "/returned/journal",
           fs::copy_options::recursive);
}

// Its journal holds the values, and a replay gives the missing findings.
TEST_F(OlderBuild, TheJournalOfABlindRunIsReplayedWhole) {
  TakeRecorded("returned");
  Start();
  Rank a(0, 1);
  a.Make(kBefore);
  MakeAfter(&a);
  ExpectAllStored({&a});
  ExpectNanFound();
}

// Its checkpoint has forgotten the sets, and the stream does not declare them again.
TEST_F(OlderBuild, AStreamComesBackToTheNextBuild) {
  TakeRecorded("over");
  Start();
  Rank a(0, 1);
  a.Make(kBefore);
  MakeAfter(&a);
  a.Deliver(*server_);
  ExpectAllStored({&a});
  ExpectNanFound();
}

}  // namespace
}  // namespace plumbline::test
