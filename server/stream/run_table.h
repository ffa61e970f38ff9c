// The runs a server knows: who reports, who is expected, who is gone, how far they are. Decides
// when a rank counts as gone, over whom a step may be closed, and when a run is over. Time is
// passed in, so that tests need not wait.
//
// Expected are the ranks of the declared world from the first hello of one of them on, whether they
// have said hello or not, and those whose stream broke. They are waited for during the grace; so is
// a rank that is connected and silent, or says that evidence waits behind what it sends and sends
// none. A rank that is connected and goes on is waited for as long as evidence of it is on its way;
// one that has said for a second, far behind, that nothing is may be closed over where it is a
// window of steps behind. (A word may be old: it waited to be read while others were read. Who says
// the same a second later is slow.)
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

// Of a run, over all ranks of its newest attempt, as far as was judged.
struct RunKnown {
  int64_t newest_step = -1;        // -1: none, or no such run
  std::map<int, uint32_t> worlds;  // ranks by role
};

// A rank of a run that goes on.
struct KnownRank {
  uint64_t stream_id = 0;
  v1::Source source;
  int64_t through = 0;  // complete; the least int64: nothing is
  bool over = false;    // nobody waits for it
  bool alone = false;   // nor for those of its world that never came
};

// Not thread-safe.
class RunTable {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kSlowFor{1};
  static constexpr std::chrono::seconds kMoment{2};  // for others to say how they end
  static constexpr std::chrono::seconds kSilent{
      5};  // at least, however short the grace: heartbeats

  // Of runs that are over so many ranks are remembered one by one; of those seen longest ago only
  // how many there were.
  static constexpr size_t kMostRanksOver = 256 << 10;

  explicit RunTable(std::chrono::nanoseconds grace, int64_t window_steps = 64)
      : grace_(grace), window_(window_steps) {}

  // `backlog`: evidence waits to be sent, as the stream says.
  void Connected(uint64_t stream_id, const v1::Source& source, bool backlog, Time now,
                 int64_t unix_ns);
  void Account(uint64_t stream_id, const v1::Batch& batch, bool backlog, Time now, int64_t unix_ns);
  // It has nothing else to say.
  void Beat(uint64_t stream_id, const v1::Source& source, bool backlog, Time now);
  // The stream ended. Its unfinished ranks may come back within the grace period. `ended`: its
  // connection broke as it does when its process ends.
  void Disconnected(uint64_t stream_id, const v1::Source& source, Time now, bool ended = true);

  // A former process's streams are all gone; their unfinished ranks may come back likewise, and so
  // may those that never came.
  void DisconnectAll(Time now);

  // Of some runs nothing is decided now: what was said of them waits to be heard.
  using Skip = std::function<bool(const std::string& run)>;

  // Ranks whose grace ended, each reported once, by run and cause.
  std::vector<v1::RanksGone> TakeGone(Time now, const Skip& skip = nullptr);
  // Up to where the lagging steps may be closed over who lags, and over whom. False: not at all.
  bool MayClose(const std::string& run, const rules::Lag& lag, v1::StepsClosed* closed) const;
  // Runs of which processes ended badly, a moment ago: those that followed have had time to say so.
  std::vector<std::string> TakeBadEnds(Time now, const Skip& skip = nullptr);
  // Of the runs below, each once: ... and the steps of those that hung go on; the run that had died
  // was begun again, or who was gone is back. `rule`: whose incidents are over.
  struct WentOn {
    std::string run;
    std::string rule;
    std::string why;
  };
  std::vector<WentOn> TakeWentOn(const std::vector<std::string>* runs = nullptr);  // null: any
  // What was told of them. `restarted`: a later attempt had begun when it was.
  void NoteDied(const std::string& run, bool restarted);
  void NoteHung(const v1::RanksHung& hung);
  void NoteStopped(const v1::StepsStopped& stopped, int64_t unix_ns);
  // Runs in which every rank has finished or is gone, each reported once until it reports again.
  // Those of `greeted` were over before, and only hellos came since: the rules have judged all.
  std::vector<std::string> TakeEnded(const Skip& skip = nullptr,
                                     std::vector<std::string>* greeted = nullptr);

  // What a former process found by the two above.
  void SetGone(const v1::RanksGone& gone);
  void SetEnded(const std::string& run);
  void SetEndsJudged(const std::string& run);
  // The rules have forgotten the run, which is over. If a process that it knows comes back, its
  // other ranks are waited for as if this server had been away: the rules do not know that they are
  // over.
  void SetForgotten(const std::string& run);

  // Runs that are not over and of which no rank is connected, and those that are over and have none
  // that is. Those to part with first come first: those with the least evidence, so that made-up
  // runs do not push out trainings. Of those that are over, the newest `young` come last.
  struct Left {
    std::string run;
    uint64_t evidence = 0;
    int64_t seen_unix_ns = 0;
  };
  std::vector<Left> Disconnected() const;
  std::vector<Left> Over(size_t young) const;
  void Erase(const std::string& run) { runs_.erase(run); }

  int64_t LastSeen(const std::string& run) const;  // Unix time, ns; 0: it is not known
  RunKnown Known(const std::string& run) const;
  bool Ended(const std::string& run) const;  // also one that is not known
  // Of the runs that go on.
  std::vector<KnownRank> Ranks() const;
  void SetClosedStep(const std::string& run, int64_t step);
  void SetAllClosed(const std::string& run);  // the run is over: every step has been judged
  // Evidence came after its step had been closed.
  void AddLate(const std::string& run, const std::string& cause, uint64_t items);
  // Evidence that was held is lost, and no agent reports it.
  void AddLost(const std::string& run, const std::string& cause, uint64_t items);
  // What the judge counted of a run, by cause: late and lost items. What agents report is not part
  // of it.
  struct Counted {
    std::map<std::string, uint64_t> late, lost;
  };
  // Takes those counts back, because the run is judged again from its beginning.
  Counted TakeCounted(const std::string& run);
  // The run was not judged to its end: each count is at least what it was.
  void KeepCounted(const std::string& run, const Counted& before);
  static std::vector<std::string> RunsOf(const v1::Batch& batch);

  size_t ranks_over() const;  // of runs that are over, remembered one by one

  // Everything but times: call DisconnectAll after reading.
  void Persist(Archive& archive);

  // Name order; `open_incidents` is left to the caller, and so is `liveness` but for "awaited":
  // ranks of the declared world that have not come, and for whom steps wait.
  std::vector<v1::RunInfo> List() const;
  static constexpr char kAwaited[] = "awaited";
  // The same with their numbers, in words, once a run and role, for those that have been waited for
  // so long.
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
    bool server_left = false;  // it is not connected because this server was away
    bool unreachable = false;  // it is not connected, and may live
    bool queued = false;       // batches waited to be sent, as it last said
    bool process = false;      // it says that it is one
    Time deadline{};           // of a rank that is not connected
    Time since{};              // it is connected
    Time heard{};
    int64_t through = kNever;  // complete
    Time flowed{};             // that went on
    bool backlog = false;
    // How far others were when it last said that nothing of it waits to be sent, and since when it
    // has said so, half a window behind, without a break.
    int64_t clear_at = kNever;
    Time slow_since = Time::max();
    Time overtaken = Time::max();  // others have delivered more since then, and nothing came of it
    bool over() const { return finished || gone; }
    void Persist(Archive& archive);
  };
  struct Role {
    uint32_t world = 0;
    bool absent_gone = false;   // ranks that never came are not waited for any more
    bool absent_told = false;   // that they are waited for
    Time since{};               // the first of its ranks is known
    Time changed{};             // who is waited for
    int64_t newest = kNever;    // step that any rank is in
    int64_t furthest = kNever;  // that any rank has delivered
    void Persist(Archive& archive) { archive(world, absent_gone); }
  };
  struct Run {
    uint32_t attempt = 0;
    bool ended = false;
    std::map<Rank, RankState> ranks;  // of the newest attempt
    std::map<int, Role> roles;
    v1::RunInfo info;               // counters and steps; ranks are counted when listed
    bool bad_ends = false;          // somebody ended badly, and it is not judged yet
    Time bad_since = Time::max();   // that was seen
    bool died = false;              // it was told that it died
    bool reborn = false;            // ... and somebody is there again
    bool unstuck = false;           // it was told to hang, and was begun again
    std::map<Rank, int64_t> stuck;  // who was told to hang, in which step
    std::set<Rank> waits;           // ... and who waited for them
    bool forgotten = false;         // it is over, and the rules have forgotten it
    int64_t stopped_since = 0;      // its steps were reported to have stopped; Unix ns, 0: no
    int64_t stopped_step = 0;       // the newest one then
    bool judged = false;            // it was over, and no evidence came since
    void Persist(Archive& archive);
  };

  void Touch(Run& run, uint64_t stream_id, const v1::Source& source, Time now);
  void ExpectAgain(Run& run, Time now) const;
  void NoteProgress(Run& run, const v1::Source& source, const v1::Progress& progress,
                    int64_t unix_ns);
  void NoteSteps(Run& run, const v1::Progress& progress, int64_t unix_ns);
  void SayWentOn(const Run& run, const char* rule, const std::string& why);
  void NoteNotWaiting(Run& run, const v1::Source& source);
  void NoteNotStuck(Run& run, const v1::Source& source, const std::string& why);
  static RankState* Find(Run& run, uint64_t stream_id, const v1::Source& source);
  Run& RunOf(const v1::Source& source, int64_t unix_ns);
  void AccountItems(const v1::Batch& batch, const std::vector<Run*>& by_source);
  void Say(const Role& role, RankState& rank, bool backlog, Time now) const;
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
  std::vector<WentOn>
      went_on_;  // not taken yet; what was said is in the incident table of incidents
};

}  // namespace plumbline::server
