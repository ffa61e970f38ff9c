// plumb_simulator: simulates 10 to 10,000 ranks in one process that speak the real protocol to a
// real server.
//
//   plumb_simulator --server 127.0.0.1:7433 --ranks 10000 --steps 300 --rate 10 --fault-every 20
//
// Prints one JSON object: what was sent and acknowledged, the rate, the latency of acknowledgements
// and, with faults, the time from the beginning of each faulty step until a watch saw its finding.
// Bounded by --steps and --seconds. Exit status 1: something was not acknowledged, or a fault was
// not seen.

#include <CLI/App.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "audit/live/client.h"
#include "base/clock.h"
#include "base/open_files.h"
#include "bench/server/simulated_stream.h"

namespace plumbline::bench {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTurn{100};  // how often every stream is served

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Records when steps began, and when the findings of their faults were seen.
class FaultWatch {
 public:
  FaultWatch(const SimulatorOptions& options) : client_(options.server) {
    if (options.fault_every <= 0) return;
    if (!options.fault_log.empty()) log_.open(options.fault_log);
    thread_ = std::thread([this, run = options.run] { Watch(run); });
    while (!caught_up_) std::this_thread::sleep_for(milliseconds(1));
  }
  ~FaultWatch() {
    client_.Cancel();
    if (thread_.joinable()) thread_.join();
  }

  void Began(int64_t step, Clock::time_point at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!began_.try_emplace(FaultLayer(step), at).second || !log_.is_open()) return;
    const std::chrono::nanoseconds ago = Clock::now() - at;
    log_ << FaultLayer(step) << " " << UnixNs() - static_cast<uint64_t>(ago.count()) << std::endl;
  }
  bool SawAll() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return seen_.size() == began_.size();
  }
  size_t planted() const { return began_.size(); }
  std::vector<float> Latencies() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<float> out;
    for (const auto& [layer, at] : seen_) {
      const auto began = began_.find(layer);
      if (began != began_.end()) out.push_back(static_cast<float>(Seconds(at - began->second)));
    }
    return out;
  }

 private:
  void Watch(const std::string& run) {
    v1::WatchIncidentsRequest request;
    request.set_run(run);
    client_
        .Watch(request,
               [this](const v1::IncidentEvent& event) {
                 const Clock::time_point now = Clock::now();
                 caught_up_ = caught_up_ || event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP;
                 const std::lock_guard<std::mutex> lock(mutex_);
                 // All faults have one cause, so they are sites of one incident.
                 const auto saw = [&](const std::string& layer) {
                   if (layer.rfind("simulated.", 0) == 0) seen_.try_emplace(layer, now);
                 };
                 saw(event.status().newest().layer());
                 for (const v1::IncidentSite& site : event.status().sites()) saw(site.layer());
                 return true;
               })
        .IgnoreError();
    caught_up_ = true;  // or it never will be
  }

  audit::Client client_;
  std::atomic<bool> caught_up_{false};
  mutable std::mutex mutex_;
  std::map<std::string, Clock::time_point> began_, seen_;
  std::ofstream log_;
  std::thread thread_;
};

// A share of the streams, and the thread that serves them.
class Worker {
 public:
  Worker(const SimulatorOptions& options, uint32_t number, FaultWatch* watch)
      : options_(options), watch_(watch), random_(options.seed + number) {
    const uint32_t streams =
        (options.ranks + options.ranks_per_stream - 1) / options.ranks_per_stream;
    for (uint32_t s = number; s < streams; s += options.threads) {
      streams_.push_back(std::make_unique<SimulatedStream>(options, s, &events_));
    }
  }

  // Connects all streams. Returns when all are welcomed, or at `until`.
  void Connect(Clock::time_point until) {
    const auto welcomed = [](const auto& s) {
      return s->connection() != nullptr && s->connection()->welcomed();
    };
    while (Clock::now() < until && !std::all_of(streams_.begin(), streams_.end(), welcomed)) {
      TurnAll();
      Events(Clock::now() + milliseconds(10));
    }
  }

  void Run(Clock::time_point start, Clock::time_point until) {
    for (const auto& s : streams_) s->next_due = start;
    Clock::time_point turn = start;
    while (Clock::now() < until && !done()) {
      Produce();
      if (Clock::now() >= turn) {
        TurnAll();
        CutSome();
        turn = Clock::now() + kTurn;
      }
      Events(std::min(turn, NextDue()));
    }
  }

  // Ends open streams, so that the queue is empty.
  void End() {
    for (const auto& s : streams_) {
      if (s->connection() != nullptr) s->Break();
    }
    const auto over = [](const auto& s) {
      return s->connection() == nullptr || s->connection()->finished();
    };
    while (!std::all_of(streams_.begin(), streams_.end(), over)) {
      Events(Clock::now() + milliseconds(10));
    }
    events_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (events_.Next(&tag, &ok)) {
    }
  }

  const std::vector<std::unique_ptr<SimulatedStream>>& streams() const { return streams_; }

 private:
  bool done() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->done(); });
  }

  void TurnAll() {
    const Clock::time_point now = Clock::now();
    for (const auto& s : streams_) s->Turn(now);
  }

  void CutSome() {
    owed_breaks_ += options_.breaks_a_second * Seconds(kTurn) / options_.threads;
    for (; owed_breaks_ >= 1; owed_breaks_ -= 1) streams_[random_() % streams_.size()]->Break();
  }

  Clock::duration Period(double pace) const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.batch_steps / (options_.rate * pace)));
  }

  Clock::time_point NextDue() const {
    if (options_.rate <= 0) return Clock::now() + milliseconds(5);
    if (!options_.free_running) return next_burst_;
    return Clock::now() + milliseconds(5);
  }

  void Produce() {
    if (options_.free_running) return ProduceFreely();
    if (options_.rate > 0) {
      while (next_burst_ <= Clock::now()) Burst(next_burst_);
      return;
    }
    // In lockstep, a step begins when every stream has space for it.
    while (
        std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->HasRoom(); }) &&
        !streams_.front()->AllProduced()) {
      Burst(Clock::now());
    }
  }

  // Produces one step of all ranks at once, as after a collective.
  void Burst(Clock::time_point began) {
    if (options_.rate > 0) next_burst_ += Period(1);
    const int64_t step = streams_.front()->produced();
    if (streams_.front()->AllProduced()) next_burst_ = Clock::time_point::max();
    Note(step, began);
    for (const auto& s : streams_) {
      s->Produce(began);
      s->Tick();
    }
  }

  void Note(int64_t first, Clock::time_point began) {
    if (options_.fault_every <= 0) return;
    for (int64_t step = first; step < first + options_.batch_steps && step < options_.steps;
         ++step) {
      if (step > 0 && step % options_.fault_every == 0) watch_->Began(step, began);
    }
  }

  void ProduceFreely() {
    const Clock::time_point now = Clock::now();
    for (const auto& s : streams_) {
      while (s->next_due <= now && s->HasRoom() && !s->AllProduced()) {
        Note(s->produced(), now);
        s->Produce(now);
        s->Tick();
        if (options_.rate > 0) s->next_due += Period(s->pace);
      }
    }
  }

  void Events(Clock::time_point until) {
    void* tag = nullptr;
    bool ok = false;
    auto wait = std::chrono::system_clock::now() +
                std::max<Clock::duration>(until - Clock::now(), Clock::duration::zero());
    for (int n = 0; n < 20000; ++n) {
      if (events_.AsyncNext(&tag, &ok, wait) != grpc::CompletionQueue::GOT_EVENT) break;
      transport::Connection::Dispatch(tag, ok)->Tick();
      wait = std::chrono::system_clock::now();
    }
  }

  const SimulatorOptions& options_;
  FaultWatch* const watch_;
  std::mt19937_64 random_;
  grpc::CompletionQueue events_;
  std::vector<std::unique_ptr<SimulatedStream>> streams_;
  Clock::time_point next_burst_ = Clock::now();
  double owed_breaks_ = 0;
};

float Quantile(std::vector<float>* sorted, double q) {
  if (sorted->empty()) return 0;
  return (*sorted)[static_cast<size_t>(q * static_cast<double>(sorted->size() - 1))];
}

nlohmann::json Spread(std::vector<float> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {{"count", seconds.size()},
          {"p50", Quantile(&seconds, 0.5)},
          {"p99", Quantile(&seconds, 0.99)},
          {"max", seconds.empty() ? 0 : seconds.back()}};
}

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Adds the server's own counts of the run.
void AddServersWord(const SimulatorOptions& options, nlohmann::json* out) {
  audit::Client client(options.server);
  const auto runs = client.Runs(10);
  if (!runs.ok()) return;
  for (const v1::RunInfo& run : runs->runs()) {
    if (run.run() != options.run) continue;
    (*out)["server"] = {{"evidence", run.evidence()},
                        {"lost", run.lost()},
                        {"ranks_seen", run.ranks_seen()},
                        {"closed_step", run.closed_step()},
                        {"newest_step", run.newest_step()}};
  }
}

int Simulate(const SimulatorOptions& options) {
  FaultWatch watch(options);
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t t = 0; t < options.threads; ++t) {
    workers.push_back(std::make_unique<Worker>(options, t, &watch));
  }
  const auto in_all = [&](auto body) {
    std::vector<std::thread> threads;
    for (const auto& worker : workers) threads.emplace_back([&, w = worker.get()] { body(w); });
    for (std::thread& t : threads) t.join();
  };
  const Clock::time_point dialled = Clock::now();
  const Clock::time_point until = dialled + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(options.seconds));
  in_all([&](Worker* w) { w->Connect(until); });
  const Clock::time_point start = Clock::now() + milliseconds(20);
  in_all([&](Worker* w) { w->Run(start, until); });
  const double took = Seconds(Clock::now() - start);
  while (options.fault_every > 0 && !watch.SawAll() && Clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  in_all([&](Worker* w) { w->End(); });

  uint64_t sent = 0, acknowledged = 0, bytes = 0, batches = 0, breaks = 0, streams = 0;
  std::vector<float> latencies;
  for (const auto& worker : workers) {
    for (const auto& s : worker->streams()) {
      ++streams;
      sent += s->samples_sent();
      acknowledged += s->samples_acknowledged();
      bytes += s->counters().bytes_sent;
      batches += s->counters().batches_sent;
      breaks += s->breaks();
      latencies.insert(latencies.end(), s->latencies().begin(), s->latencies().end());
    }
  }
  nlohmann::json out = {
      {"ranks", options.ranks},
      {"streams", streams},
      {"series", options.series},
      {"steps", options.steps},
      {"connect_seconds", Seconds(start - dialled)},
      {"seconds", took},
      {"samples_sent", sent},
      {"samples_acknowledged", acknowledged},
      {"samples_a_second", static_cast<double>(acknowledged) / took},
      {"batches", batches},
      {"wire_bytes", bytes},
      {"breaks", breaks},
      {"ack_seconds", Spread(std::move(latencies))},
      {"client_cpu_seconds", CpuSeconds()},
  };
  if (options.fault_every > 0) {
    out["faults_planted"] = watch.planted();
    out["finding_seconds"] = Spread(watch.Latencies());
  }
  AddServersWord(options, &out);
  std::printf("%s\n", out.dump(2).c_str());
  return acknowledged == sent && sent > 0 && watch.SawAll() ? 0 : 1;
}

int Main(int argc, char** argv) {
  SimulatorOptions o;
  CLI::App app{"plumb_simulator: many ranks in one process, to load a server", "plumb_simulator"};
  app.add_option("--server", o.server, "address of plumbd, or of a relay")->required();
  app.add_option("--run", o.run, "name of the run")->capture_default_str();
  app.add_option("--attempt", o.attempt, "restarts before this one");
  app.add_option("--ranks", o.ranks)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--ranks-per-stream", o.ranks_per_stream)
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--series", o.series, "scalars of a rank a step")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--steps", o.steps)->capture_default_str();
  app.add_option("--rate", o.rate, "steps a second; 0: as fast as acknowledgements allow");
  app.add_flag("--free", o.free_running, "streams run freely, 20 % around the rate");
  app.add_option("--batch-steps", o.batch_steps, "steps a batch")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--window", o.window, "unacknowledged batches of a stream")->capture_default_str();
  app.add_option("--seconds", o.seconds, "end after this long")->capture_default_str();
  app.add_option("--fault-every", o.fault_every, "each n-th step a router leaks; 0: never");
  app.add_option("--fault-log", o.fault_log, "write there when each fault began");
  app.add_option("--breaks", o.breaks_a_second, "connections cut a second");
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--seed", o.seed)->capture_default_str();
  app.add_flag("!--no-goodbye", o.goodbye, "end as if killed");
  CLI11_PARSE(app, argc, argv);
  plumbline::RaiseOpenFiles();
  return Simulate(o);
}

}  // namespace
}  // namespace plumbline::bench

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return plumbline::bench::Main(argc, argv);
}
