// The runs that a server knows: the ranks that report, are expected or are gone, and their
// progress. Decides when a rank counts as gone, over which ranks a step may be closed, and when a
// run is over. Time is passed in, so that tests need not wait.
//
// Expected are the ranks of the declared world, from the first hello of one of them on, and ranks
// whose stream broke. They are awaited during the grace. A connected rank is also awaited during
// the grace if it is silent, or if it reports a backlog and sends none of it. A connected rank that
// progresses is awaited as long as its evidence is on the way. If it has reported for a second that
// no evidence waits, and is a window of steps late, it may be closed over. (A single report may be
// old, because it waited to be read. A rank that reports the same a second later is slow.)
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/run_state.h"

namespace plumbline::server {

// The state of a run over all ranks of its newest attempt, as of the judged entries.
struct RunKnown {
  int64_t newest_step = -1;        // -1: none, or no such run
  std::map<int, uint32_t> worlds;  // ranks by role
};

// A rank of a run in progress.
struct KnownRank {
  uint64_t stream_id = 0;
  v1::Source source;
  int64_t through = 0;  // complete up to here; the least int64: nothing is
  bool over = false;    // true if the server no longer waits for this rank
  bool connected = false;
  bool alone = false;  // true if it no longer waits for ranks of its world that never came
};

// Not thread-safe.
class RunTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kSlowFor{1};
  static constexpr std::chrono::seconds kMoment{2};  // for the endings of other processes to arrive
  static constexpr std::chrono::seconds kSilent{
      5};  // at least, even if the grace is shorter, because of heartbeats

  // Limit of the ranks that are stored individually for runs that are over. For the runs seen
  // longest ago, only counts are stored.
  static constexpr size_t kMostRanksOver = 256 << 10;

  explicit RunTable(std::chrono::nanoseconds grace, int64_t window_steps = 64)
      : grace_(grace), window_(window_steps) {}

  // `backlog` is true if the stream reports that evidence waits to be sent.
  void Connected(uint64_t stream_id, const v1::Source& source, bool backlog, Time now,
                 int64_t unix_ns);
  void Account(uint64_t stream_id, const v1::Batch& batch, bool backlog, Time now, int64_t unix_ns);
  // Records a heartbeat of a rank that has nothing else to send.
  void Beat(uint64_t stream_id, const v1::Source& source, bool backlog, Time now);
  // Records that the stream ended. Its unfinished ranks may return within the grace period.
  // `ended`: its connection broke as it does when the process ends.
  void Disconnected(uint64_t stream_id, const v1::Source& source, Time now, bool ended = true);

  // Records that the streams of an earlier process are all gone. Their unfinished ranks may return
  // within the grace period, and ranks that never came may also come then.
  void DisconnectAll(Time now);

  // Returns true for runs about which nothing may be decided now, because reports of them are still
  // queued.
  using Skip = std::function<bool(const std::string& run)>;

  // Returns ranks whose grace ended, each once, by run and cause.
  std::vector<v1::RanksGone> TakeGone(Time now, const Skip& skip = nullptr);
  // Computes the step up to which lagging steps may be closed, and over which ranks. Returns false
  // if none may be closed.
  bool MayClose(const std::string& run, const rules::Lag& lag, v1::StepsClosed* closed) const;
  // Returns runs with processes that ended badly some time ago, so that the endings of others have
  // arrived.
  std::vector<std::string> TakeBadEnds(Time now, const Skip& skip = nullptr);
  // A condition that is over: hung ranks of the run progress, a run that had died was started
  // again, or a gone rank is back. `rule` is the rule whose incidents are over.
  struct Continued {
    std::string run;
    std::string rule;
    std::string why;
  };
  std::vector<Continued> TakeContinued(
      const std::vector<std::string>* runs = nullptr);  // null: any run
  // Records that a condition was reported. `restarted`: a later attempt had begun by then.
  void NoteDied(const std::string& run, bool restarted);
  void NoteHung(const v1::RanksHung& hung);
  void NoteStopped(const v1::StepsStopped& stopped, int64_t unix_ns);
  // Returns runs in which every rank has finished or is gone, each once until it reports again.
  // Runs in `greeted` were over before and only got hellos since: the rules have judged all of
  // their evidence.
  std::vector<std::string> TakeEnded(const Skip& skip = nullptr,
                                     std::vector<std::string>* greeted = nullptr);

  // Ends the grace of the run's ranks that are not connected: TakeGone returns them next.
  void EndGrace(const std::string& run, Time now);

  // Restores the results of an earlier process from TakeGone, TakeEnded and TakeBadEnds.
  void SetGone(const v1::RanksGone& gone);
  void SetEnded(const std::string& run);
  void SetEndsJudged(const std::string& run);
  // Records that the rules have forgotten the run, which is over. If a process that it knows
  // returns, its other ranks are awaited as if this server had been away, because the rules do not
  // know that they are over.
  void SetForgotten(const std::string& run);

  // Return the runs without a connected rank: those that are not over, and those that are over. The
  // first ones should be forgotten first: runs with the least evidence, so that invented runs do
  // not displace trainings. Among runs that are over, the newest `young` come last.
  struct Left {
    std::string run;
    uint64_t evidence = 0;
    int64_t seen_unix_ns = 0;
  };
  std::vector<Left> Disconnected() const;
  std::vector<Left> Over(size_t young) const;
  void Erase(const std::string& run) { runs_.erase(run); }

  int64_t LastSeen(const std::string& run) const;  // Unix time, ns; 0: unknown
  RunKnown Known(const std::string& run) const;
  bool Ended(const std::string& run) const;  // true also for an unknown run
  // Returns the ranks of runs in progress.
  std::vector<KnownRank> Ranks() const;
  // Returns the ranks of one run, also if it is over, and `worlds`, the declared number of ranks by
  // role. Empty if the run is unknown.
  std::vector<KnownRank> RanksOf(const std::string& run, std::map<int, uint32_t>* worlds) const;
  void SetClosedStep(const std::string& run, int64_t step);
  void SetAllClosed(const std::string& run);  // the run is over: every step has been judged
  // Counts evidence that arrived after its step was closed.
  void AddLate(const std::string& run, const std::string& cause, uint64_t items);
  // Counts evidence that was held and is lost, if no agent reports it.
  void AddLost(const std::string& run, const std::string& cause, uint64_t items);
  // Items that the judge counted for a run, by cause: late and lost. Losses that agents report are
  // not included.
  struct Counted {
    std::map<std::string, uint64_t> late, lost;
  };
  // Removes and returns those counts, because the run is judged again from its beginning.
  Counted TakeCounted(const std::string& run);
  // Raises each count to at least its earlier value, because the run was not judged to its end.
  void KeepCounted(const std::string& run, const Counted& before);
  static std::vector<std::string> RunsOf(const v1::Batch& batch);

  size_t ranks_over() const;  // of runs that are over, kept individually

  // Stores or reads everything but times. Call DisconnectAll after reading.
  void Persist(Archive& archive);

  // Returns the runs in order of their names. The caller fills in `open_incidents` and `liveness`,
  // except "awaited": ranks of the declared world that have not come and for which steps wait.
  std::vector<v1::RunInfo> List() const;
  static constexpr char kAwaited[] = "awaited";
  // Returns a text with the numbers of these ranks, once per run and role, if they have been
  // awaited longer than `longer_than`.
  std::vector<std::string> TakeAwaited(Time now, std::chrono::nanoseconds longer_than);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  using Rank = std::pair<int, uint32_t>;  // (role, rank)
  struct RankState {
    v1::Source source;
    uint64_t stream_id = 0;
    bool connected = false;
    bool finished = false;
    bool gone = false;
    bool server_left = false;  // not connected because this server was away
    bool unreachable = false;  // not connected, but may be alive
    bool queued = false;       // its last report had batches that waited to be sent
    bool process = false;      // its source is a process
    Time deadline{};           // if it is not connected
    Time since{};              // time since which it is connected
    Time heard{};
    int64_t through = kNever;  // complete
    Time flowed{};             // when it last progressed
    bool backlog = false;
    // The newest step of the role when the rank last reported that none of its evidence waits.
    // Since when it has reported this without a break while half a window late.
    int64_t clear_at = kNever;
    Time slow_since = Time::max();
    // since when other ranks have delivered more while this one delivered nothing
    Time overtaken = Time::max();
    bool over() const { return finished || gone; }
    void Persist(Archive& archive);
  };
  struct Role {
    uint32_t world = 0;
    bool absent_gone = false;      // ranks that never came are no longer awaited
    bool absent_reported = false;  // true if a report was made that they are awaited
    Time since{};                  // when its first rank became known
    Time changed{};                // when the set of awaited ranks last changed
    int64_t newest = kNever;       // newest step of any rank
    int64_t furthest = kNever;     // newest step that any rank has delivered
    void Persist(Archive& archive) { archive(world, absent_gone); }
  };
  struct Run {
    uint32_t attempt = 0;
    bool ended = false;
    std::map<Rank, RankState> ranks;  // of the newest attempt
    std::map<int, Role> roles;
    v1::RunInfo info;               // counters and steps; ranks are counted in List
    bool bad_ends = false;          // a process ended badly, and this is not judged yet
    Time bad_since = Time::max();   // when that was seen
    bool died = false;              // it was reported that the run died
    bool reborn = false;            // the run was reported as died, and a process has returned
    bool unstuck = false;           // it was reported to hang, and was started again
    std::map<Rank, int64_t> stuck;  // the ranks reported to hang, and in which step
    std::set<Rank> waits;           // the ranks that waited for the hung ranks
    bool forgotten = false;         // the run is over, and the rules have forgotten it
    int64_t stopped_since = 0;      // its steps were reported to have stopped; Unix ns, 0: no
    int64_t stopped_step = 0;       // the newest step at that time
    bool judged = false;            // the run was over, and no evidence arrived since
    void Persist(Archive& archive);
  };

  void Touch(Run& run, uint64_t stream_id, const v1::Source& source, Time now);
  void ExpectAgain(Run& run, Time now) const;
  void NoteProgress(Run& run, const v1::Source& source, const v1::Progress& progress,
                    int64_t unix_ns);
  void NoteSteps(Run& run, const v1::Progress& progress, int64_t unix_ns);
  void DescribeContinued(const Run& run, const char* rule, const std::string& why);
  void NoteNotWaiting(Run& run, const v1::Source& source);
  void NoteNotStuck(Run& run, const v1::Source& source, const std::string& why);
  static RankState* Find(Run& run, uint64_t stream_id, const v1::Source& source);
  Run& RunOf(const v1::Source& source, int64_t unix_ns);
  void AccountItems(const v1::Batch& batch, const std::vector<Run*>& by_source);
  void Report(const Role& role, RankState& rank, bool backlog, Time now) const;
  bool Stalled(const Role& role, RankState& rank, int64_t slowest, Time now) const;
  v1::RanksGone::Cause CauseOf(const Role& role, RankState& rank, int64_t slowest, Time now) const;
  static int64_t Slowest(const Run& run, int role);
  static bool AllSeen(const Run& run, int role);
  static uint32_t Seen(const Run& run, int role);
  static std::string Absent(const Run& run, int role);
  bool AllRanksOver(const Run& run) const;
  static void CountRanks(const Run& run, v1::RunInfo* info);
  void ForgetRanksOver();
  static bool AnyConnected(const Run& run);
  std::vector<Left> ListLeft(bool ended) const;

  std::chrono::nanoseconds grace_;
  int64_t window_;
  std::map<std::string, Run> runs_;
  static constexpr uint64_t kCountEach = 1024;
  size_t ranks_over_at_most_ = 0;  // those that were counted last, and of runs that ended since
  uint64_t ends_ = 0;
  std::vector<Continued>
      continued_;  // not taken yet; the table of incidents holds the reports themselves
};

}  // namespace plumbline::server
