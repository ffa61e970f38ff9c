// Trainers in lock step with a plumbd that is killed, stopped and started late, and agents whose
// connections are cut. Every acknowledged value is in the store once, nothing is late or lost, and
// the findings are those of an audit of the ranks' records. PLUMB_LONG=1: 100 rounds, with outages
// of up to 10 s and trainers that start up to 20 s before the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <random>

#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/server/support.h"
#include "transport/stream_sender.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Random = std::mt19937_64;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

double ValueOf(uint32_t rank, int64_t step) { return rank + static_cast<double>(step) / 4096; }

// One rank: the work of its drain thread, and the transport of an agent. Its record holds
// everything that it passed to the transport.
class Rank {
 public:
  Rank(const std::string& target, const v1::Source& source, uint64_t stream_id)
      : source_(source), outbox_({64u << 20, 1 << 16}) {
    config_.target = target;
    config_.sources = {source};
    config_.stream_id = stream_id;
    config_.tool_version = "test";
    config_.reconnecting = source.world_size();
    config_.newest_step = [this] { return newest_.load(); };
    Resume();
  }
  ~Rank() { Cut(); }

  void Step(int64_t step) {
    newest_ = step + 1;
    if (pending_.sources().empty()) *pending_.add_sources() = source_;
    AddScalar(&pending_, "loss", step, ValueOf(source_.rank(), step));
    if (step % 40 == 7) {
      const v1::Batch leak =
          LeakingStep(source_, step, "layers." + std::to_string(source_.rank() % 3));
      *pending_.add_evidence() = leak.evidence(0);
    }
  }
  // Does what a drain thread does ten times a second.
  void Flush(int64_t through, bool finished = false) {
    if (pending_.sources().empty()) *pending_.add_sources() = source_;
    AddProgress(&pending_, through).set_newest_step(finished ? through : through + 1);
    pending_.mutable_progress(0)->set_finished(finished);
    outbox_.Push(transport::Seal(pending_));
    record_.push_back(std::exchange(pending_, {}));
  }

  // Breaks its connection; nothing is sent until it is resumed.
  void Cut() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void Resume() {
    stop_ = false;
    thread_ = std::thread([this] {
      transport::StreamSender(config_, &outbox_, &counters_,
                              {[] { return false; }, [this] { return stop_.load(); }})
          .Run();
    });
  }
  bool delivered() { return outbox_.state().empty(); }
  const std::vector<v1::Batch>& record() const { return record_; }
  const v1::Source& source() const { return source_; }

 private:
  const v1::Source source_;
  transport::Outbox outbox_;
  transport::StreamConfig config_;
  transport::StreamCounters counters_;
  std::atomic<int64_t> newest_{-1};
  std::atomic<bool> stop_{false};
  v1::Batch pending_;
  std::vector<v1::Batch> record_;
  std::thread thread_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;
using Findings = std::map<std::string, std::tuple<std::string, int, double, uint64_t>>;

void Enter(const v1::Finding& finding, uint64_t count, Findings* findings) {
  (*findings)[finding.fingerprint()] = {finding.rule(), static_cast<int>(finding.level()),
                                        finding.measured().value(), count};
}

// Audits the records of a run as plumb audit does: always continues with the rank at the lowest
// step.
Findings AuditOf(const Ranks& ranks) {
  rules::Report report;
  Findings findings;
  auto engine = rules::Engine::Create({}, [&](const v1::Verdict& verdict) {
    const auto change = report.Add(verdict);
    if (change.finding != nullptr) Enter(*change.finding, change.count, &findings);
  });
  std::vector<size_t> next(ranks.size(), 0);
  for (;;) {
    size_t after = ranks.size();
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto& record = ranks[i]->record();
      if (next[i] == record.size()) continue;
      const int64_t at = next[i] == 0 ? -1 : record[next[i] - 1].progress(0).complete_through();
      if (at < least) {
        least = at;
        after = i;
      }
    }
    if (after == ranks.size()) break;
    EXPECT_TRUE((*engine)->Add(ranks[after]->record()[next[after]++]).ok());
  }
  (*engine)->Finish();
  return findings;
}

class LockstepTest : public testing::Test {
 protected:
  LockstepTest() {
    StartServer("127.0.0.1:0");
    address_ = server_ == nullptr ? "" : server_->address();
  }
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }

  void StartServer(const std::string& address) {
    Eventually([&] {
      server_ = std::make_unique<Plumbd>(std::vector<std::string>{
          "--data", folder_.File("data"), "--grpc", address, "--grace", Long() ? "30" : "15"});
      return !server_->address().empty() ||
             server_->process().errors().find("cannot listen on") == std::string::npos;
    });
  }
  void KillServer() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }

  // Sleeps up to `most` seconds, often much less.
  void Nap(double most) {
    const double share = std::uniform_real_distribution<>(0, 1)(random_);
    std::this_thread::sleep_for(std::chrono::duration<double>(most * share * share));
  }

  // Causes faults while the trainer trains.
  void Disturb(const Ranks& ranks, const std::atomic<bool>& training) {
    const double away = Long() ? 10 : 1;
    while (training) {
      Nap(Long() ? 4 : 1);
      Rank& rank = *ranks[random_() % ranks.size()];
      switch (random_() % 4) {
        case 0:
        case 1:
          KillServer();
          Nap(away);
          StartServer(address_);
          break;
        case 2:
          server_->process().Signal(SIGSTOP);
          Nap(away);
          server_->process().Signal(SIGCONT);
          break;
        default:
          rank.Cut();
          Nap(away);
          rank.Resume();
      }
    }
  }

  // Trains with all ranks; the server runs from the start, or starts later.
  void Train(const Ranks& ranks, int64_t steps, milliseconds step_time) {
    auto flushed = Clock::now();
    for (int64_t step = 0; step < steps; ++step) {
      for (const auto& rank : ranks) rank->Step(step);
      std::this_thread::sleep_for(step_time);
      if (Clock::now() - flushed < milliseconds(100)) continue;
      flushed = Clock::now();
      for (const auto& rank : ranks) rank->Flush(step);
    }
    for (const auto& rank : ranks) rank->Flush(steps - 1, true);
  }

  void Round(const std::string& run, uint32_t world, int64_t steps, milliseconds step_time) {
    const bool trainer_first = random_() % 2 == 0;
    if (trainer_first) KillServer();
    Ranks ranks;
    for (uint32_t r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<Rank>(address_, SourceOf(run, r, world), ++streams_));
    }
    std::atomic<bool> training{true};
    std::thread disturbances([&] {
      if (trainer_first) {
        Nap(Long() ? 20 : 1.5);
        StartServer(address_);
      }
      Disturb(ranks, training);
    });
    Train(ranks, steps, step_time);
    training = false;
    disturbances.join();
    ASSERT_TRUE(Eventually([&] {
      return std::all_of(ranks.begin(), ranks.end(), [](const auto& r) { return r->delivered(); });
    }));
    CheckRun(run, ranks, steps);
  }

  void CheckRun(const std::string& run, const Ranks& ranks, int64_t steps) {
    std::optional<v1::RunInfo> info;
    EXPECT_TRUE(Eventually([&] {
      info = server_->Run(run);
      return info && info->closed_step() >= steps - 1 && info->ranks_finished() == ranks.size();
    })) << (info ? info->DebugString() : "no such run");
    if (!info) return;
    EXPECT_EQ(info->late(), 0u) << info->DebugString();
    EXPECT_EQ(info->lost(), 0u) << info->DebugString();
    EXPECT_EQ(info->samples(), ranks.size() * static_cast<size_t>(steps));
    CheckValues(run, ranks.size(), steps);
    const Findings expected = AuditOf(ranks);
    Findings found;
    EXPECT_TRUE(Eventually([&] {
      found.clear();
      for (const v1::IncidentStatus& status : server_->Statuses(run)) {
        for (const v1::IncidentSite& site : status.sites())
          Enter(server_->Finding(site.fingerprint()), site.count(), &found);
      }
      return found == expected;
    })) << testing::PrintToString(found)
        << "\nexpected " << testing::PrintToString(expected);
    EXPECT_FALSE(expected.empty());
  }

  // Checks that each value exists, and no other.
  void CheckValues(const std::string& run, size_t world, int64_t steps) {
    grpc::ClientContext context;
    v1::QuerySeriesRequest request;
    request.set_run(run);
    request.set_max_cells(1'000'000);
    v1::QuerySeriesResponse response;
    const auto status =
        v1::Query::NewStub(server_->Channel())->QuerySeries(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.series_size(), 1);
    const v1::SeriesColumns& series = response.series(0);
    ASSERT_EQ(series.rank_size(), static_cast<int>(world));
    ASSERT_EQ(series.step_size(), steps);
    EXPECT_TRUE(series.absent().empty() ||
                series.absent().find_first_not_of('\0') == std::string::npos);
    for (int r = 0; r < series.rank_size(); ++r) {
      for (int s = 0; s < series.step_size(); ++s) {
        ASSERT_EQ(series.mean(r * series.step_size() + s), ValueOf(series.rank(r), series.step(s)));
      }
    }
  }

  Random random_{7};
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::string address_;
  uint64_t streams_ = 100;
};

TEST_F(LockstepTest, NothingIsLateAndWhatIsFoundIsWhatAnAuditFinds) {
  ASSERT_FALSE(address_.empty()) << server_->process().errors();
  const int rounds = Long() ? 100 : 3;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const uint32_t world = 2u << (round % 3);
    const auto step_time = milliseconds(Long() ? 20 + random_() % 181 : 20);
    const auto steps = static_cast<int64_t>((Long() ? 30000 : 5000) / step_time.count());
    Round("lockstep-" + std::to_string(round), world, steps, step_time);
  }
}

// The original case: two ranks, killed and back after 0.3 s. Then a quarter to a half of a rank's
// evidence came late.
TEST_F(LockstepTest, AServerThatIsBackAfterAMomentLosesNothing) {
  ASSERT_FALSE(address_.empty()) << server_->process().errors();
  Ranks ranks;
  for (uint32_t r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<Rank>(address_, SourceOf("moment", r, 2), ++streams_));
  }
  constexpr int64_t kSteps = 300;
  std::thread outage([&] {
    std::this_thread::sleep_for(milliseconds(500));
    KillServer();
    ranks[1]->Cut();  // its agent takes longer to reconnect
    std::this_thread::sleep_for(milliseconds(300));
    StartServer(address_);
    std::this_thread::sleep_for(milliseconds(3000));
    ranks[1]->Resume();
  });
  Train(ranks, kSteps, milliseconds(20));
  outage.join();
  ASSERT_TRUE(Eventually([&] { return ranks[0]->delivered() && ranks[1]->delivered(); }));
  CheckRun("moment", ranks, kSteps);
}

}  // namespace
}  // namespace plumbline::test
