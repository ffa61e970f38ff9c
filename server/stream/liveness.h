// Which processes go on. A rank's agent sends a heartbeat from a thread of its own when it has
// nothing else to say, so four things can be told apart: a process that ended (its connection broke
// while it was heard), a network that was lost (it was silent before that), a trainer that stands
// still (heartbeats go on, steps do not), and one that takes its time: within a declared
// checkpoint, evaluation or compilation, or before its first steps are done, nobody is said to
// hang. Where all stand in one step, those within a collective (a span of that kind is open) wait
// for those that are not.
//
// A process between two steps and within no span is *idle*: a notebook whose cell is done, a loop
// that has ended, a person who thinks. So is one between the stages of a step that has stages: the
// step of a loop that was left in the middle stays open. Where all are, nobody hangs. Beside others
// that stand within a later step it is awaited, as any rank that has not come so far; it never
// waits itself.
//
// A rank stands still from max(hang, 5 median steps, twice the longest pause that the run came back
// from) on, by its own clock; where too few steps were seen to know how long one takes (a fast loop
// that stopped early), from max(30 hang, twice that pause) on. What makes others wait is told of
// only where all others wait. A stream that is not heard of any more, though it is connected, is
// that of a process that was stopped or of a lost network: named where it fell silent before all
// others stood. Where anything else is not known (an agent that does not say how long it stands)
// nothing is said.
//
// If all processes of a trainer are heard of and idle, the run has stopped between two steps: a
// loader that blocks, a loop that ended without finish(). It is reported from max(between, 20
// median steps) on (liveness_between.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
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

  // `between`: the shortest time without a step that is reported of a run whose processes are alive
  // and in no step.
  explicit Liveness(Nanos hang = std::chrono::seconds(10), Nanos between = std::chrono::seconds(60))
      : hang_(hang), between_(between) {}

  void Joined(const v1::Hello& hello, uint64_t connection, Time now);
  void Left(uint64_t stream_id, uint64_t connection, Time now);
  void Heard(uint64_t stream_id, const v1::Batch& batch, Time now);
  void Heard(uint64_t stream_id, const v1::Heartbeat& beat, Time now);
  void Forget(const std::string& run);  // it is over

  // What is to be told now, each once: a run that goes on may be told of again. Call every half
  // second or so. `stopped` gets the runs whose processes are all alive and begin no step; null:
  // they are not looked for.
  std::vector<v1::RanksHung> Look(Time now, std::vector<v1::StepsStopped>* stopped = nullptr);

  // Processes of a run by state: "running", "late" (in a declared stage), "idle" (between steps,
  // for long), "still", "silent", "gone", "unreachable".
  std::map<std::string, uint64_t> States(const std::string& run, Time now) const;

  static constexpr std::chrono::seconds kSilent{5};  // several heartbeats

 private:
  using Key = std::tuple<std::string, uint32_t, int>;  // run, attempt, role
  struct Process {
    uint64_t connection = 0;
    std::vector<v1::Source> sources;
    std::vector<Key> groups;                       // that they belong to, each once
    std::map<std::string, uint64_t> ranks_by_run;  // how many
    bool connected = true;
    bool finished = false;
    bool unreachable = false;  // it was silent before its connection broke
    Time heard{}, left{};
    Time beat{};         // the last heartbeat
    Time still_since{};  // on this host's clock, by what the last heartbeat said
    Time moved{};        // its steps went on, as batches show
    int64_t newest = -1, complete = -1;
    int64_t first = -1;         // the step in which it was first heard
    int64_t ended = 0;          // steps
    int64_t ended_before = -1;  // ... when it joined, or by its first heartbeat; -1: not known
    Time joined{};              // first
    Time excused{};             // the last heartbeat within a declared stage
    bool in_step = false;
    v1::Span::Kind last_stage = v1::Span::KIND_UNSPECIFIED;  // that ended
    bool tells = false;                                      // how long it stands
    v1::Span::Kind stage = v1::Span::KIND_UNSPECIFIED;
  };
  struct Group {
    std::deque<double> steps;  // seconds, newest last
    int64_t newest = -1;
    Time newest_at{};
    Nanos pause{0};    // of all of it, by now
    Nanos longest{0};  // that it came back from
    bool told = false, told_error = false;
    bool stop_told = false, stop_told_error = false;
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
  void SetLimits(const Group& group, v1::RanksHung* out) const;
  static double MedianStep(const Group& group);
  // Reports a run that stopped between two steps (liveness_between.cc).
  void LookBetween(const Key& key, const Members& members, Time now,
                   std::vector<v1::StepsStopped>* out) const PLUMB_REQUIRES(mutex_);
  void SetBetweenLimits(const Members& members, v1::StepsStopped* out) const;

  static constexpr size_t kLeastSteps = 5;  // of which a median is known
  static constexpr size_t kMostHost = 128;  // bytes of a name; a longer one is left out

  const Nanos hang_, between_;
  mutable Mutex mutex_;
  // Senders choose the numbers and names.
  std::unordered_map<uint64_t, Process, absl::Hash<uint64_t>> processes_
      PLUMB_GUARDED_BY(mutex_);  // by stream
  // Streams, connected or not, by the rank and by the run that they say they are of.
  std::unordered_map<std::string, std::set<uint64_t>, absl::Hash<std::string>> by_rank_
      PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::set<uint64_t>, absl::Hash<std::string>> by_run_
      PLUMB_GUARDED_BY(mutex_);
  std::map<Key, Group> groups_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
