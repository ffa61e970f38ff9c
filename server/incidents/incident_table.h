// Incidents: findings of one (rule, run, cause), gathered; what people did to them; and their
// changes, in order, for watchers.
//
// A finding whose cause is refined moves to the incident of that cause, and an incident that is
// left empty closes as merged. So which incidents there are, and what is in them, follows from the
// findings as they finally stand (rules/engine/incidents.h), whatever came before what.
//
// Nothing in here depends on a clock: a quiet incident is resolved by steps, and what people or
// clocks decide comes in as an IncidentUpdate, so that a replayed journal gives the same incident
// table.
//
// A watcher keeps a cursor into the order of changes instead of a queue. An incident that changes
// again before a watcher has read it moves to the end, so what a slow watcher costs is bounded by
// the number of incidents, and it always gets the newest state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/incident_state.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

struct IncidentFilter {
  std::string run;        // empty: all
  std::string rule_glob;  // empty: all
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  std::string fingerprint;  // a prefix, of the incident or of a finding in it; empty: all
  std::function<bool(const std::string& run)> visible;  // null: every run

  // All but the fingerprint.
  bool Matches(const v1::Finding& finding) const;
};

// InvalidArgument: it lacks who, why, or the end of a silence.
absl::Status CheckUpdate(const v1::IncidentUpdate& update);

// Thread-safe.
class IncidentTable {
 public:
  struct Change {
    v1::Incident incident;
    v1::IncidentStatus status;
    uint64_t opened_at = 0;  // position of the incident's first change
    uint64_t revision = 0;   // changes of this incident so far, this one included
    // Of its run, as far as the table was told; filled by Get alone.
    int64_t closed_step = INT64_MIN;
  };
  using OnRevision =
      std::function<void(const std::string& fingerprint, const v1::IncidentRevision& revision)>;

  // An incident not found again for `quiet_steps` closed steps is resolved. `unix_ns`: the time
  // that changes are dated with.
  explicit IncidentTable(std::function<int64_t()> unix_ns, int64_t quiet_steps = 1000);
  // `on_change` runs after each change, on the changing thread; it must be quick. It may still run
  // once while, and shortly after, Unsubscribe gives its number back.
  int Subscribe(std::function<void()> on_change);
  void Unsubscribe(int subscription);
  // `on_revision` runs for each change that matters to people, on the changing thread.
  void SetOnRevision(OnRevision on_revision);

  // What became of a finding.
  struct Placed {
    bool opened = false;  // its incident was not there
    bool shows = false;   // it shows for its incident, and did not before in this strength
  };
  // The merged finding of its fingerprint, of `count` verdicts so far.
  Placed Put(const v1::Finding& finding, uint64_t count);
  // Resolves what has been quiet, and ends silences that ran until a step before this one.
  void StepClosed(const std::string& run, int64_t step);
  // What the rule found in the run is over, as what came since shows: its incidents are resolved.
  void WentOn(const std::string& run, const std::string& rule, const std::string& why);
  // The run is over and is forgotten: its incidents are resolved.
  void RunForgotten(const std::string& run);
  // Erases the incidents of a run.
  void Forget(const std::string& run);
  // NotFound; InvalidArgument says what is missing. `update.fingerprint` is whole: of an incident
  // (of one that is merged: what it is merged into), or of a finding, whose incident it means.
  absl::Status Apply(const v1::IncidentUpdate& update);
  // The silences whose time is over, as updates that end them.
  std::vector<v1::IncidentUpdate> SilencesOver(int64_t unix_ns) const;

  // The fingerprint of the incident that is meant: by the first digits of its own, or of a
  // finding's in it, or by "#" and its number. NotFound; InvalidArgument where several would do.
  // Among those of runs that are `visible`; null: all.
  using Visible = std::function<bool(const std::string& run)>;
  absl::StatusOr<std::string> Resolve(const std::string& name,
                                      const Visible& visible = nullptr) const;
  // The finding that is meant: one that is named by its own digits, or the one that shows for the
  // incident. As Resolve.
  absl::StatusOr<v1::Finding> FindingOf(const std::string& name,
                                        const Visible& visible = nullptr) const;
  // `fingerprint` of an incident, whole.
  absl::StatusOr<Change> Get(const std::string& fingerprint) const;
  // Of the incident that holds this finding now; empty: none.
  std::string IncidentOf(const std::string& finding_fingerprint) const;

  // Position of the newest change; 0 before the first.
  uint64_t position() const;
  // Whose positions those are: a table that is made again from the same journal has the same ones.
  // By chance another in every table, unless it is set or restored.
  std::string identity() const;
  void SetIdentity(std::string identity);
  // Changes after position `sure` have come again, those of different runs in another order than
  // when a former process told them.
  void CameInAnotherOrder(uint64_t sure);
  // Where a reader goes on who has been told of all up to `position`: not behind what it may have
  // missed then.
  uint64_t CursorOf(uint64_t position) const;
  // Before the first change.
  void SetQuietSteps(int64_t steps);

  // The first change after `*cursor` that passes the filter; moves the cursor there, or, without
  // one, to the end.
  bool Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const;

  // By id. Merged ones only where a fingerprint asks for them; a finding that is asked for by its
  // own is the one shown.
  std::vector<Change> List(const IncidentFilter& filter) const;
  uint64_t OpenIn(const std::string& run) const;  // neither over nor suppressed
  // How many are neither over nor suppressed, by rule and level. `wanted`: counts only those whose
  // shown finding it accepts; it is called under the table's lock.
  using RuleCounts = std::map<std::pair<std::string, v1::Level>, uint64_t>;
  RuleCounts OpenByRule(const std::function<bool(const v1::Finding&)>& wanted = nullptr) const;

  v1::IncidentBookState Checkpoint() const;
  // Between the two nobody else gets in. For who makes a copy of the process, in which a lock that
  // another thread had would never be left.
  void Lock() const PLUMB_ACQUIRE(mutex_) { mutex_.Lock(); }
  void Unlock() const PLUMB_RELEASE(mutex_) { mutex_.Unlock(); }
  void Restore(const v1::IncidentBookState& state);  // of an empty table

 private:
  struct Entry;
  struct Member {
    v1::Finding finding;
    uint64_t count = 0;
    uint32_t ranks = 0;
    bool whole = false;  // false: without what only its own page would show
    Entry* entry = nullptr;
  };
  struct ShownFirst {
    bool operator()(const Member* a, const Member* b) const;
  };
  struct Entry {
    // Its finding is set only while no member is left.
    v1::Incident incident;
    v1::IncidentStatus status;
    uint64_t opened_at = 0;
    uint64_t changed_at = 0;
    std::set<Member*, ShownFirst> members;
    size_t whole = 0;                // of them
    const Member* newest = nullptr;  // the one that was put last; null: it has moved away

    const v1::Finding& shown() const {
      return members.empty() ? incident.finding() : (*members.begin())->finding;
    }
    bool over() const { return incident.state() == v1::Incident::STATE_RESOLVED; }
    bool merged() const { return !status.merged_into().empty(); }
  };
  struct Run {
    int64_t closed_step = INT64_MIN;
    int64_t due = INT64_MAX;  // the first step at which one of them may change by itself
    std::vector<Entry*> entries;
  };
  // What a change tells others once the lock is released.
  struct PendingCalls {
    std::vector<std::function<void()>> on_change;
    OnRevision on_revision;
    std::vector<std::pair<std::string, v1::IncidentRevision>> revisions;
  };
  using Revision = v1::IncidentRevision;

  // Resolves those incidents of the run that `which` accepts.
  void ResolveEach(const std::string& run, const std::function<bool(const Entry&)>& which,
                   const std::string& why);
  void Touch(Entry* entry, int64_t now) PLUMB_REQUIRES(mutex_);
  void Say(const Entry& entry, Revision::Change change, const std::string& who,
           const std::string& reason, PendingCalls* pending) const PLUMB_REQUIRES(mutex_);
  static void SetState(Entry* entry, v1::Incident::State state);
  int64_t DueOf(const Entry& entry) const;
  bool ByItself(Entry* entry, int64_t step, PendingCalls* pending) PLUMB_REQUIRES(mutex_);
  int64_t QuietOf(const Entry& entry) const;
  void NoteApart(Entry* to, bool fresh, int64_t step) const;
  PendingCalls CallsNow() const PLUMB_REQUIRES(mutex_);
  static void Make(const PendingCalls& pending);

  // incident_names.cc: who is meant
  static Change ChangeOf(const Entry& entry);
  Entry* Meant(const std::string& fingerprint) PLUMB_REQUIRES(mutex_);
  static const Member* Named(const Entry& entry, const std::string& prefix);
  static bool Asked(const Entry& entry, const std::string& prefix);

  // incident_gather.cc: findings come and move
  Entry* EntryOf(const v1::Finding& finding, int64_t now) PLUMB_REQUIRES(mutex_);
  static void TakeOut(Member* member);
  static void PutIn(Member* member, Entry* entry);
  static void Slim(Member* member);
  static void NoteOrigin(Entry* to, const Entry* from, bool opens, bool joins);
  void Revive(Entry* entry) PLUMB_REQUIRES(mutex_);
  void Merge(Entry* from, Entry* into, v1::Finding last, int64_t now, PendingCalls* pending)
      PLUMB_REQUIRES(mutex_);
  void Left(Entry* from, Entry* to, v1::Finding last, int64_t now, PendingCalls* pending)
      PLUMB_REQUIRES(mutex_);
  static v1::IncidentStatus StatusOf(const Entry& entry);

  const std::function<int64_t()> unix_ns_;
  int64_t quiet_steps_;
  mutable Mutex mutex_;
  std::map<int, std::function<void()>> on_change_ PLUMB_GUARDED_BY(mutex_);
  int next_subscription_ PLUMB_GUARDED_BY(mutex_) = 1;
  OnRevision on_revision_ PLUMB_GUARDED_BY(mutex_);
  std::string identity_ PLUMB_GUARDED_BY(mutex_);
  uint64_t position_ PLUMB_GUARDED_BY(mutex_) = 0;
  // Positions after it, up to the next one, are not to be relied on.
  uint64_t sure_ PLUMB_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t sure_again_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Entry> by_fingerprint_
      PLUMB_GUARDED_BY(mutex_);  // nodes do not move
  std::unordered_map<std::string, Member> members_
      PLUMB_GUARDED_BY(mutex_);  // by the finding's fingerprint
  uint64_t last_id_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, const Entry*> by_change_ PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Run> runs_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
