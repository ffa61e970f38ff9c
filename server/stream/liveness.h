// Detects which processes progress. A rank's agent sends a heartbeat from its own thread if it has
// nothing else to send. So four states are distinguished: a process that ended (its connection
// broke while it was sending), a lost network (it was silent before that), a blocked trainer
// (heartbeats continue, steps do not), and a slow trainer. Within a declared checkpoint, evaluation
// or compilation, or before its first steps are done, no process is reported to hang. If all are
// blocked in one step, those within a collective (a span of that kind is open) wait for the others.
//
// A process between two steps with no open span is *idle*: a notebook whose cell is done, a loop
// that has ended, a user's pause. A process between the stages of a step that has stages is idle
// too, because the step of a loop that was left in the middle stays open. If all are idle, no
// process hangs. If others are blocked within a later step, they wait for the idle one, as for any
// rank that has made less progress. An idle process never waits.
//
// A rank counts as blocked after max(hang, 5 median steps, twice the longest pause that the run
// recovered from), by its own clock. If too few steps were seen for a median (a fast loop that
// stopped early), the limit is max(30 hang, twice that pause). The cause of a hang is reported only
// if all other ranks wait. A connected stream without messages belongs to a stopped process or a
// lost network: it is named if it fell silent before all others were blocked. If anything else is
// unknown (an agent that does not report how long it is blocked), nothing is reported.
//
// If all processes of a trainer send heartbeats and are idle, the run has stopped between two
// steps: a loader that blocks, a loop that ended without finish(). It is reported after
// max(between, 20 median steps) (liveness_between.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "base/archive.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::server {

// Thread-safe. Time is passed in, so that tests need not wait.
class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanos = std::chrono::nanoseconds;

  // `between`: the shortest time without a step that is reported if a run's processes are alive and
  // in no step.
  explicit Liveness(Nanos hang = std::chrono::seconds(10), Nanos between = std::chrono::seconds(60))
      : hang_(hang), between_(between) {}

  void Joined(const v1::Hello& hello, uint64_t connection, Time now);
  void Left(uint64_t stream_id, uint64_t connection, Time now);
  void Heard(uint64_t stream_id, const v1::Batch& batch, Time now);
  void Heard(uint64_t stream_id, const v1::Heartbeat& beat, Time now);
  void Forget(const std::string& run);  // the run is over

  // Returns the hangs to report now, each once; a run that recovers may be reported again. Call
  // about twice a second. `stopped` gets the runs whose processes are all alive and begin no step;
  // if null, these are not detected.
  std::vector<v1::RanksHung> Look(Time now, std::vector<v1::StepsStopped>* stopped = nullptr);

  // Returns the number of processes of a run by state: "running", "late" (in a declared stage),
  // "idle" (between steps, for long), "still", "silent", "gone", "unreachable".
  std::map<std::string, uint64_t> States(const std::string& run, Time now) const;

  // Returns the pace of one attempt's trainers; 0: not known. The paces of the newest 4,096
  // attempts of runs that are over stay known.
  struct Pace {
    double step_seconds = 0;   // a median step
    double longest_pause = 0;  // seconds, that the attempt recovered from
    void Persist(Archive& archive) { archive(step_seconds, longest_pause); }
  };
  Pace PaceOf(const std::string& run, uint32_t attempt) const;
  // Returns the known paces, for a checkpoint; Restore takes those of an earlier process.
  using Paces = std::deque<std::pair<std::tuple<std::string, uint32_t, int>, Pace>>;
  Paces AllPaces() const;
  void Restore(Paces paces);

  static constexpr std::chrono::seconds kSilent{5};  // several heartbeats

 private:
  using Key = std::tuple<std::string, uint32_t, int>;  // run, attempt, role
  struct Process {
    uint64_t connection = 0;
    std::vector<v1::Source> sources;
    std::vector<Key> groups;                       // that they belong to, each once
    std::map<std::string, uint64_t> ranks_by_run;  // the number of ranks
    bool connected = true;
    bool finished = false;
    bool unreachable = false;  // the process was silent before its connection broke
    Time heard{}, left{};
    Time beat{};         // the last heartbeat
    Time still_since{};  // on this host's clock, computed from the last heartbeat
    Time moved{};        // when its steps last progressed, as batches show
    int64_t newest = -1, complete = -1;
    int64_t first = -1;         // the step of its first report
    int64_t ended = 0;          // completed steps
    int64_t ended_before = -1;  // ... when it joined, or by its first heartbeat; -1: not known
    Time joined{};              // for the first time
    Time excused{};             // time of the last heartbeat within a declared stage
    bool in_step = false;
    v1::Span::Kind last_stage = v1::Span::KIND_UNSPECIFIED;  // the last that ended
    bool reports = false;  // the process reports how long it has been blocked
    v1::Span::Kind stage = v1::Span::KIND_UNSPECIFIED;
  };
  struct Group {
    std::deque<double> steps;  // seconds, newest last
    int64_t newest = -1;
    Time newest_at{};
    Nanos pause{0};    // of all processes, so far
    Nanos longest{0};  // longest pause that the run recovered from
    bool reported = false, reported_error = false;
    bool stop_ordered = false, stop_ordered_error = false;
  };
  struct Members {
    std::vector<const Process*> all;
    Group* group = nullptr;
  };

  struct Standing {
    std::vector<const Process*> lost, standing;
    Nanos still = Nanos::max();
  };

  void Advance(Process* process, int64_t newest, Time now) PLUMB_REQUIRES(mutex_);
  void List(uint64_t stream_id, Process* process) PLUMB_REQUIRES(mutex_);
  void Unlist(uint64_t stream_id) PLUMB_REQUIRES(mutex_);
  void Erase(uint64_t stream_id) PLUMB_REQUIRES(mutex_);
  static void Measure(Group* group, int64_t newest, Time now);
  static int64_t PlaceOf(const Process& p);
  static bool Sort(const Members& members, Time now, Standing* out);
  bool Judge(const Key& key, const Members& members, Time now, v1::RanksHung* out) const
      PLUMB_REQUIRES(mutex_);
  static void NamePlace(const Members& members, v1::RanksHung* out);
  void SetLimits(const Group& group, v1::RanksHung* out) const;
  static double MedianStep(const Group& group);
  static Pace PaceOf(const Group& group);
  void KeepPace(const Key& key, const Group& group) PLUMB_REQUIRES(mutex_);
  // Reports a run that stopped between two steps (liveness_between.cc).
  void LookBetween(const Key& key, const Members& members, Time now,
                   std::vector<v1::StepsStopped>* out) const PLUMB_REQUIRES(mutex_);
  void SetBetweenLimits(const Members& members, v1::StepsStopped* out) const;

  static constexpr size_t kLeastSteps = 5;  // fewer give no median
  static constexpr size_t kMostHost = 128;  // bytes of a host name; a longer one is left out

  const Nanos hang_, between_;
  mutable Mutex mutex_;
  // Seeded hashes, because senders choose the numbers and names.
  std::unordered_map<uint64_t, Process, absl::Hash<uint64_t>> processes_
      PLUMB_GUARDED_BY(mutex_);  // by stream
  // Streams, connected or not, by the ranks and the runs that they reported.
  std::unordered_map<std::string, std::set<uint64_t>, absl::Hash<std::string>> by_rank_
      PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::set<uint64_t>, absl::Hash<std::string>> by_run_
      PLUMB_GUARDED_BY(mutex_);
  std::map<Key, Group> groups_ PLUMB_GUARDED_BY(mutex_);
  Paces over_ PLUMB_GUARDED_BY(mutex_);  // newest last
};

}  // namespace plumbline::server
