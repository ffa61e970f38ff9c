// Real trainers in lock step, one process per rank, that are stopped and continued, or are killed,
// with a plumbd that is killed and restarted. Every acknowledged value is in the store once, also
// the values that a killed process left in its spool. No value is late or lost, and the findings
// equal those of `plumb audit` of the ranks' records. PLUMB_LONG=1: 30 rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/server/support.h"
#include "tests/server/trainer_processes.h"

namespace plumbline::test {
namespace {

using std::chrono::milliseconds;
using Random = std::mt19937_64;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

// rule, layer, op, level, measured value of each fingerprint.
using Findings = std::map<std::string, std::tuple<std::string, std::string, std::string, double>>;

class Trainers : public TrainerProcesses {
 public:
  using TrainerProcesses::TrainerProcesses;

  // Kills a rank; the others continue without it. Returns the last step that it may have reported.
  int64_t Kill(uint32_t rank) { return KillRank(rank) + 1; }
};

class LockstepProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    StartServer("127.0.0.1:0");
    address_ = server_->address();
    ASSERT_FALSE(address_.empty()) << server_->process().errors();
  }
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }
  void StartServer(const std::string& address) {
    Eventually([&] {
      server_ = std::make_unique<Plumbd>(std::vector<std::string>{
          "--data", folder_.File("data"), "--grpc", address, "--grace", "15"});
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

  // Stops a rank, and with it all that wait for it; or the server.
  void Disturb(Trainers& trainers) {
    const double away = Long() ? 5 : 1;
    switch (random_() % 4) {
      case 0:
        KillServer();
        Nap(away);
        StartServer(address_);
        break;
      case 1:
        server_->process().Signal(SIGSTOP);
        Nap(away);
        server_->process().Signal(SIGCONT);
        break;
      default: {
        const Process& rank =
            trainers.rank(static_cast<uint32_t>(random_() % trainers.plan().world));
        rank.Signal(SIGSTOP);
        Nap(away);
        rank.Signal(SIGCONT);
      }
    }
  }

  // Sends the spool of a killed process.
  static void SendSpools(const Trainers& trainers, const std::string& address) {
    Ended sent;
    EXPECT_TRUE(Eventually([&] {
      sent = RunToEnd({PLUMB_PROGRAM, "spool", "send", trainers.Spools(), "--server", address});
      return sent.status == 0;
    })) << sent.output
        << sent.errors;
  }

  void Round(const TrainerPlan& plan, bool kill) {
    Trainers trainers(plan, address_);
    const int64_t kill_at = kill ? 5 + static_cast<int64_t>(random_() % (plan.steps / 2)) : -1;
    const auto victim = static_cast<uint32_t>(random_() % plan.world);
    int64_t lost_from = plan.steps;
    while (trainers.AnyRuns()) {
      Nap(Long() ? 3 : 0.7);
      if (kill && !trainers.killed() && trainers.at(victim) >= kill_at) {
        lost_from = trainers.Kill(victim);
        SendSpools(trainers, address_);
      } else if (trainers.AnyRuns()) {
        Disturb(trainers);
      }
    }
    for (uint32_t rank = 0; rank < plan.world; ++rank) {
      if (trainers.killed() == rank) continue;
      EXPECT_EQ(trainers.rank(rank).Wait(), 0) << "rank " << rank << trainers.rank(rank).errors();
    }
    CheckRun(trainers, lost_from);
  }

  void CheckRun(const Trainers& trainers, int64_t lost_from) {
    const auto& [run, world, steps, step_ms, nan_at] = trainers.plan();
    const uint32_t finished = world - (trainers.killed() ? 1 : 0);
    std::optional<v1::RunInfo> info;
    EXPECT_TRUE(Eventually([&, steps = steps, run = run] {
      info = server_->Run(run);
      return info && info->closed_step() >= steps - 1 && info->ranks_finished() == finished;
    })) << (info ? info->DebugString() : "no such run");
    if (!info) return;
    EXPECT_EQ(info->late(), 0u) << info->DebugString();
    EXPECT_EQ(info->lost(), 0u) << info->DebugString();
    EXPECT_TRUE(server_->Incidents(run, "meta/data-loss").empty());
    CheckValues(trainers, lost_from);
    // If the server was away when the rank died, or had not read all its data, it does not report
    // the death; the records show it.
    const auto death = [](const auto& entry) {
      return std::get<0>(entry.second) == "health/run-died";
    };
    Findings expected = Audited(trainers.Records());
    const size_t deaths = std::erase_if(expected, death);
    EXPECT_EQ(deaths, trainers.killed() ? 1u : 0u);
    EXPECT_FALSE(expected.empty());
    Findings found;
    EXPECT_TRUE(Eventually([&, run = run] {
      found = Found(run);
      EXPECT_LE(std::erase_if(found, death), deaths);
      return found == expected;
    })) << testing::PrintToString(found)
        << "\nexpected " << testing::PrintToString(expected);
  }

  // Checks all values of each rank, in order and without a gap; of a killed rank those until it was
  // killed, except the last tenth of a second, which its agent had not sent.
  void CheckValues(const Trainers& trainers, int64_t lost_from) {
    const TrainerPlan& plan = trainers.plan();
    grpc::ClientContext context;
    v1::QuerySeriesRequest request;
    request.set_run(plan.run);
    request.set_max_cells(1'000'000);
    v1::QuerySeriesResponse response;
    const auto status =
        v1::Query::NewStub(server_->Channel())->QuerySeries(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.series_size(), 1);
    const v1::SeriesColumns& series = response.series(0);
    ASSERT_EQ(series.rank_size(), static_cast<int>(plan.world));
    ASSERT_EQ(series.step_size(), plan.steps);
    for (int r = 0; r < series.rank_size(); ++r) {
      int64_t values = 0;
      for (int s = 0; s < series.step_size(); ++s) {
        const auto cell = static_cast<size_t>(r * series.step_size() + s);
        const bool absent =
            !series.absent().empty() && (series.absent()[cell / 8] >> (cell % 8) & 1) != 0;
        if (absent) continue;
        ASSERT_EQ(series.step(s), values++) << "rank " << r;
        ASSERT_EQ(series.mean(static_cast<int>(cell)),
                  r + static_cast<double>(series.step(s)) / 4096);
      }
      values_checked_ += values;
      if (trainers.killed() != static_cast<uint32_t>(r)) {
        EXPECT_EQ(values, plan.steps) << "rank " << r;
        continue;
      }
      // A batch is sent after 100 ms; a busy machine may take ten times that.
      EXPECT_LE(values, lost_from + 1);
      EXPECT_GE(values, lost_from - 1 - 1000 / plan.step_ms);
    }
  }

  Findings Found(const std::string& run) const {
    Findings found;
    for (const v1::IncidentStatus& status : server_->Statuses(run)) {
      for (const v1::IncidentSite& site : status.sites()) {
        const v1::Finding finding = server_->Finding(site.fingerprint());
        found[site.fingerprint()] = {finding.rule(), finding.site().layer(), finding.site().op(),
                                     finding.measured().value()};
      }
    }
    return found;
  }
  static Findings Audited(const std::string& records) {
    const Ended audit = RunToEnd({PLUMB_PROGRAM, "audit", records, "--format", "json"});
    Findings found;
    const auto report = nlohmann::json::parse(audit.output, nullptr, false);
    EXPECT_TRUE(report.is_object()) << audit.errors;
    if (!report.is_object()) return found;
    for (const auto& finding : report["findings"]) {
      found[finding["fingerprint"]] = {finding["rule"], finding["site"]["layer"],
                                       finding["site"]["op"], finding["measured"]["value"]};
    }
    return found;
  }

  Random random_{11};
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::string address_;
  int64_t values_checked_ = 0;
};

TEST_F(LockstepProcessTest, NothingIsLateAndWhatIsFoundIsWhatAnAuditFinds) {
  const int rounds = Long() ? 30 : 3;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    TrainerPlan plan;
    plan.run = "processes-" + std::to_string(round);
    plan.world = 2u << (round % 3);
    plan.step_ms = Long() ? 20 + static_cast<int64_t>(random_() % 181) : 20;
    plan.steps = (Long() ? 20000 : 4000) / plan.step_ms;
    Round(plan, round % 2 == 1);
  }
  std::printf("%d rounds, %lld values checked\n", rounds, static_cast<long long>(values_checked_));
}

}  // namespace
}  // namespace plumbline::test
