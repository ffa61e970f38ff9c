// Real trainers, one process per rank, whose server or relay is killed or stopped for shorter and
// for longer than the grace. Trainers are stopped too, and some are killed, whose spools come late.
// Then every value must be in the store once. The findings of the live server must equal those of
// an audit of the server and of an audit of the ranks' records. `plumb runs` must state any loss.
// PLUMB_LONG=1: rounds PLUMB_ROUNDS=A:B (1:151), PLUMB_AT_ONCE=N of them at once (4), at a grace of
// PLUMB_GRACE seconds (2). PLUMB_OUTAGE=A:B: each outage takes from A to B seconds, at most 150.
//
// Left out of the comparison: findings about how processes end or wait, since records know no
// outages, and the pair of a tensor's and a loss's NaN in neighbouring steps of two ranks, which
// the trainers do not make (decision 0109).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "tests/server/support.h"
#include "tests/server/trainer_processes.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

std::string Setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

double Grace() { return Long() ? std::stod(Setting("PLUMB_GRACE", "2")) : 1; }

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// ---- findings --------------------------------------------------------------------------------

using Findings = std::set<std::string>;  // rule, layer, op

// Returns false for rules on how processes end and wait, which an audit of records cannot know.
bool Compared(const std::string& rule) {
  return rule != "health/run-died" && rule != "performance/hang" &&
         rule != "performance/straggler" && rule.rfind("meta/", 0) != 0;
}

Findings Live(const Plumbd& server, const std::string& run) {
  Findings found;
  for (const v1::IncidentStatus& status : server.Statuses(run)) {
    for (const v1::IncidentSite& site : status.sites()) {
      const v1::Finding finding = server.Finding(site.fingerprint());
      if (Compared(finding.rule()))
        found.insert(finding.rule() + " " + finding.site().layer() + " " + finding.site().op());
    }
  }
  return found;
}

Findings Audited(std::vector<std::string> what) {
  what.insert(what.begin(), {PLUMB_PROGRAM, "audit"});
  what.insert(what.end(), {"--format", "json", "--quiet"});
  const Ended audit = RunToEnd(what);
  Findings found;
  const auto report = nlohmann::json::parse(audit.output, nullptr, false);
  EXPECT_TRUE(report.is_object()) << audit.errors;
  if (!report.is_object()) return found;
  for (const auto& finding : report["findings"]) {
    const std::string rule = finding["rule"];
    if (Compared(rule))
      found.insert(rule + " " + finding["site"]["layer"].get<std::string>() + " " +
                   finding["site"]["op"].get<std::string>());
  }
  return found;
}

// ---- the trainers ------------------------------------------------------------------------------

class Trainers : public TrainerProcesses {
 public:
  using TrainerProcesses::TrainerProcesses;

  // Returns true halfway from one of the rank's NaN to the next: records and spool may differ in
  // the last tenths of a second.
  bool MayKill(uint32_t rank) const {
    const int64_t period = 20 * plan().world, at = this->at(rank);
    const int64_t since = (at - 20 * static_cast<int64_t>(rank) - 7) % period;
    return at >= 10 && since > period / 3 && since < period * 3 / 4;
  }
  void Kill(uint32_t rank) { killed_at_ = KillRank(rank); }
  int64_t killed_at() const { return killed_at_; }

 private:
  int64_t killed_at_ = -1;
};

// ---- one round ---------------------------------------------------------------------------------

class Round {
 public:
  explicit Round(int number) : number_(number), random_(static_cast<uint64_t>(number)) {}

  // Runs the round; reports a failure.
  void Run() {
    through_relay_ = number_ % 2 == 1;
    StartServer("127.0.0.1:0");
    if (through_relay_) StartRelay("127.0.0.1:0");
    TrainerPlan plan;
    plan.run = "outage-" + std::to_string(number_);
    plan.world = 2 + static_cast<uint32_t>(random_() % 2);
    plan.step_ms = Long() ? 50 : 20;
    plan.steps = Long() ? 160 : 120;
    plan.nan_at = 20 * (2 + static_cast<int64_t>(random_() % 3)) + 15;
    Trainers trainers(plan, door());
    if (!Eventually([&] { return server_->Run(plan.run).has_value(); })) return Fail("no run");
    const bool kill = number_ % 3 == 2;
    const int outages = Long() ? 1 + static_cast<int>(random_() % 2) : 1;
    for (int i = 0; i < outages && away_ < 40; ++i) {
      Sleep(0.3 + Share());
      if (kill && i == 0) KillOne(&trainers);
      Outage(&trainers);
    }
    if (trainers.killed()) SendSpools(trainers);
    for (uint32_t rank = 0; rank < plan.world; ++rank) {
      if (trainers.killed() == rank) continue;
      if (const int status = trainers.rank(rank).Wait(); status != 0)
        Fail("rank " + std::to_string(rank) + " ended with " + std::to_string(status) + ": " +
             trainers.rank(rank).errors());
    }
    Check(trainers);
  }

  const std::string& what() const { return what_; }
  uint64_t values() const { return values_; }
  double away() const { return away_; }
  std::string failure() const { return failure_; }

 private:
  const std::string& door() const { return through_relay_ ? relay_address_ : address_; }
  double Share() { return std::uniform_real_distribution<>(0, 1)(random_); }
  void Fail(const std::string& why) { failure_ += why + "\n"; }
  void Report(const std::string& what) { what_ += (what_.empty() ? "" : ", ") + what; }

  std::unique_ptr<Plumbd> Started(const std::vector<std::string>& options,
                                  const std::string& address) {
    std::unique_ptr<Plumbd> server;
    Eventually([&] {
      std::vector<std::string> all = options;
      all.insert(all.end(), {"--grpc", address});
      server = std::make_unique<Plumbd>(all);
      return !server->address().empty() ||
             server->process().errors().find("cannot listen on") == std::string::npos;
    });
    if (server->address().empty()) Fail("plumbd did not start: " + server->process().errors());
    return server;
  }
  void StartServer(const std::string& address) {
    char grace[32];
    std::snprintf(grace, sizeof grace, "%g", Grace());
    server_ = Started({"--data", folder_.File("data"), "--grace", grace}, address);
    address_ = server_->address();
  }
  void StartRelay(const std::string& address) {
    relay_ = Started({"--relay", address_}, address);
    relay_address_ = relay_->address();
  }
  static void KillProcess(const std::unique_ptr<Plumbd>& plumbd) {
    plumbd->process().Signal(SIGKILL);
    plumbd->process().Wait();
  }

  // Returns seconds: half of the outages are shorter than the grace. The longest are a minute at a
  // grace of 2 s, and 100 s at 30: a trainer that is done waits 240 s for its server.
  double Length() {
    if (const std::string range = Setting("PLUMB_OUTAGE", ""); !range.empty()) {
      const double least = std::stod(range), most = std::stod(range.substr(range.find(':') + 1));
      return least + (most - least) * Share();
    }
    if (random_() % 2 == 0) return std::max(0.3, Grace() * (0.3 + 0.5 * Share()));
    const double longest = !Long() ? 3 : random_() % 16 == 0 ? 30 : 5;
    return Grace() * 1.2 + (std::min(100.0, Grace() * longest) - Grace() * 1.2) * Share();
  }

  void Outage(Trainers* trainers) {
    const double seconds = Length();
    away_ += seconds;
    char length[32];
    std::snprintf(length, sizeof length, " %.1f s", seconds);
    const auto choice = random_() % 5;
    if (choice == 0) {
      Report(std::string("server killed") + length);
      KillProcess(server_);
      Sleep(seconds);
      StartServer(address_);
    } else if (choice == 1) {
      Report(std::string("server stopped") + length);
      server_->process().Signal(SIGSTOP);
      Sleep(seconds);
      server_->process().Signal(SIGCONT);
    } else if (choice == 2 && through_relay_) {
      Report(std::string("relay killed") + length);
      KillProcess(relay_);
      Sleep(seconds);
      StartRelay(relay_address_);
    } else if (choice == 3 && through_relay_) {
      Report(std::string("relay stopped") + length);
      relay_->process().Signal(SIGSTOP);
      Sleep(seconds);
      relay_->process().Signal(SIGCONT);
    } else {
      Report(std::string("trainers stopped") + length);
      trainers->SignalAll(SIGSTOP);
      Sleep(seconds);
      trainers->SignalAll(SIGCONT);
    }
  }

  void KillOne(Trainers* trainers) {
    const auto victim = static_cast<uint32_t>(random_() % trainers->plan().world);
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (!trainers->MayKill(victim)) {
      if (Clock::now() > until || !trainers->rank(victim).running()) return;
      std::this_thread::sleep_for(milliseconds(2));
    }
    trainers->Kill(victim);
    Report("rank " + std::to_string(victim) + " killed in step " +
           std::to_string(trainers->killed_at() + 1));
  }

  // Sends them to the server or through the relay, up to two graces after the outage.
  void SendSpools(const Trainers& trainers) {
    Sleep(2 * Grace() * Share());
    Ended sent;
    if (!Eventually([&] {
          sent = RunToEnd({PLUMB_PROGRAM, "spool", "send", trainers.Spools(), "--server", door()});
          return sent.status == 0;
        }))
      Fail("the spool was not sent: " + sent.output + sent.errors);
  }

  void Check(const Trainers& trainers) {
    const TrainerPlan& plan = trainers.plan();
    std::string why;
    if (!Eventually([&] {
          why = Values(trainers);
          return why.empty();
        }))
      Fail(why);
    const auto info = server_->Run(plan.run);
    if (!info) return Fail("no such run");
    if (info->lost() != 0) Fail("lost: " + info->ShortDebugString());
    // Steps with these values close when the run continues or is over. Then the last finding
    // follows.
    const Findings records = Audited({trainers.Records()});
    Findings live;
    if (!Eventually([&] { return (live = Live(*server_, plan.run)) == records; }))
      Fail("live " + testing::PrintToString(live) + "\nrecords " + testing::PrintToString(records));
    const Findings kept = Audited({"--server", address_, "--run", plan.run});
    if (kept != records)
      Fail("of the server " + testing::PrintToString(kept) + "\nrecords " +
           testing::PrintToString(records));
    if (records.empty()) Fail("the records have no finding");
    const Ended runs = RunToEnd({PLUMB_PROGRAM, "runs", "--server", address_});
    if (runs.output.find(plan.run) == std::string::npos) Fail("plumb runs: " + runs.output);
    if (!failure_.empty()) Fail(server_->process().errors() + runs.output);
  }

  // Returns "" if every value exists once, and no other value exists.
  std::string Values(const Trainers& trainers) {
    const TrainerPlan& plan = trainers.plan();
    values_ = 0;
    const auto stub = v1::Query::NewStub(server_->Channel());
    grpc::ClientContext context, list_context;
    v1::QuerySeriesRequest request;
    request.set_run(plan.run);
    request.set_max_cells(1'000'000);
    v1::QuerySeriesResponse response;
    const auto status = stub->QuerySeries(&context, request, &response);
    if (!status.ok()) return status.error_message();
    for (const v1::SeriesColumns& series : response.series()) {
      if (std::string why = Column(trainers, series); !why.empty()) return why;
    }
    v1::ListSeriesRequest list;
    list.set_run(plan.run);
    v1::ListSeriesResponse listed;
    if (!stub->ListSeries(&list_context, list, &listed).ok()) return "ListSeries failed";
    uint64_t samples = 0;
    for (const v1::SeriesInfo& one : listed.series()) samples += one.samples();
    if (listed.series_size() != 2) return "expected two series";
    if (samples != values_)
      return std::to_string(samples) + " samples are stored, of " + std::to_string(values_) +
             " values";
    return "";
  }

  std::string Column(const Trainers& trainers, const v1::SeriesColumns& series) {
    const TrainerPlan& plan = trainers.plan();
    const bool loss = series.site().op() == "loss";
    for (int r = 0; r < series.rank_size(); ++r) {
      int64_t next = 0;
      for (int s = 0; s < series.step_size(); ++s) {
        const auto cell = static_cast<size_t>(r * series.step_size() + s);
        if (!series.absent().empty() && (series.absent()[cell / 8] >> (cell % 8) & 1) != 0)
          continue;
        const int64_t step = series.step(s);
        const double value = series.mean(static_cast<int>(cell));
        const bool nan = loss && step == plan.nan_at && series.rank(r) == 0;
        const double expected = loss ? 2.0 : series.rank(r) + static_cast<double>(step) / 4096;
        if (step != next++)
          return series.site().op() + " of rank " + std::to_string(series.rank(r)) + ": step " +
                 std::to_string(next - 1) + " is missing";
        if (nan ? !std::isnan(value) : value != expected)
          return series.site().op() + ": another value in step " + std::to_string(step);
      }
      const bool killed = trainers.killed() == series.rank(r);
      // The agent of a killed rank had not sent the last second.
      const int64_t least = killed ? trainers.killed_at() - 1000 / plan.step_ms : plan.steps;
      const int64_t most = killed ? trainers.killed_at() + 2 : plan.steps;
      if (next < least || next > most)
        return series.site().op() + " of rank " + std::to_string(series.rank(r)) + ": " +
               std::to_string(next) + " values of " + std::to_string(least);
      values_ += static_cast<uint64_t>(next);
    }
    return series.rank_size() == static_cast<int>(plan.world) ? "" : "a rank is missing";
  }

  const int number_;
  std::mt19937_64 random_;
  bool through_relay_ = false;
  TempFolder folder_;
  std::unique_ptr<Plumbd> server_, relay_;
  std::string address_, relay_address_;
  std::string what_, failure_;
  uint64_t values_ = 0;
  double away_ = 0;
};

TEST(OutageProcess, NothingIsLostAndWhatIsFoundIsWhatAuditsFind) {
  const std::string rounds = Long() ? Setting("PLUMB_ROUNDS", "1:151") : "1:5";
  const int first = std::stoi(rounds), end = std::stoi(rounds.substr(rounds.find(':') + 1));
  const int at_once = Long() ? std::stoi(Setting("PLUMB_AT_ONCE", "4")) : 4;
  std::atomic<int> next{first};
  std::mutex mutex;  // guards what follows
  uint64_t values = 0;
  double away = 0;
  int failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < at_once; ++i) {
    threads.emplace_back([&] {
      for (int number = next++; number < end; number = next++) {
        Round round(number);
        round.Run();
        const std::lock_guard lock(mutex);
        values += round.values();
        away += round.away();
        failures += round.failure().empty() ? 0 : 1;
        EXPECT_EQ(round.failure(), "") << "round " << number << ": " << round.what();
        std::printf("round %d: %s: %llu values%s\n", number, round.what().c_str(),
                    static_cast<unsigned long long>(round.values()),
                    round.failure().empty() ? "" : ", FAILED");
        std::fflush(stdout);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d rounds, %d failed, %llu values checked, %.0f s of outages\n", end - first,
              failures, static_cast<unsigned long long>(values), away);
}

// ---- a loss ------------------------------------------------------------------------------------

uint64_t Stored(const Plumbd& server, const std::string& run) {
  const auto stub = v1::Query::NewStub(server.Channel());
  grpc::ClientContext context;
  v1::ListSeriesRequest request;
  request.set_run(run);
  v1::ListSeriesResponse response;
  if (!stub->ListSeries(&context, request, &response).ok()) return 0;
  uint64_t samples = 0;
  for (const v1::SeriesInfo& info : response.series()) samples += info.samples();
  return samples;
}

// Starts a trainer of `steps` steps whose server is away until it has done them all.
void ExpectTheLossIsStated(int64_t steps, const std::string& cause,
                           const std::vector<std::string>& limits) {
  TempFolder folder;
  std::string address;
  {
    Plumbd before;
    address = before.address();
    ASSERT_EQ(before.Stop(), 0);
  }
  const std::string barrier = folder.Write("barrier", std::string(sizeof(int64_t), '\xff'));
  std::vector<std::string> environment = {"PLUMBLINE_SERVER=" + address};
  for (const std::string& limit : limits)
    environment.push_back(limit.back() == '=' ? limit + folder.File("spool") : limit);
  Process trainer({PLUMB_TRAINER, "loses", "0", "1", std::to_string(steps), "0", barrier, "-1"},
                  environment);
  const auto done = [&] {
    int64_t at = -1;
    const std::string bytes = ReadFile(barrier);
    if (bytes.size() == sizeof at) std::memcpy(&at, bytes.data(), sizeof at);
    return at == steps - 1;
  };
  ASSERT_TRUE(Eventually(done)) << trainer.errors();
  const auto server = Plumbd::At(address);
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  trainer.Wait();
  // Two values and a tensor per step, and the tensor's raw rows, which have a separate cause.
  const auto items = static_cast<uint64_t>(3 * steps);
  std::optional<v1::RunInfo> run;
  EXPECT_TRUE(Eventually([&] {
    run = server->Run("loses");
    return run && run->ranks_finished() == 1 && run->closed_step() == steps - 1;
  })) << trainer.errors();
  ASSERT_TRUE(run.has_value());
  const auto lost = run->lost_by_cause();
  ASSERT_TRUE(lost.contains(cause)) << run->ShortDebugString();
  EXPECT_EQ(run->evidence() + lost.at(cause), items);
  EXPECT_LE(Stored(*server, "loses"), run->evidence());
  const Ended runs = RunToEnd({PLUMB_PROGRAM, "runs", "--server", address});
  EXPECT_THAT(runs.output, testing::HasSubstr(std::to_string(run->lost()) + " lost"));
  uint64_t sum = 0;
  for (const auto& [of, count] : lost) {
    EXPECT_THAT(runs.output,
                testing::HasSubstr("lost: " + std::to_string(count) + " by " + of + "\n"));
    sum += count;
  }
  EXPECT_EQ(sum, run->lost());
  EXPECT_TRUE(Eventually([&] { return !server->Incidents("loses", "meta/data-loss").empty(); }));
}

TEST(OutageProcess, AFullSpoolIsStated) {
  ExpectTheLossIsStated(20'000, "spool-full",
                        {"PLUMBLINE_SPOOL=", "PLUMBLINE_SPOOL_BYTES=1048576"});
}

TEST(OutageProcess, AFullQueueIsStated) {
  ExpectTheLossIsStated(2000, "queue-full", {"PLUMBLINE_QUEUE_BYTES=16384"});
}

}  // namespace
}  // namespace plumbline::test
