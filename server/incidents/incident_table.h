// Incidents: findings of one (rule, run, cause), gathered; the decisions of people about them; and
// their changes, in order, for watchers.
//
// A finding whose cause is refined moves to the incident of that cause, and an incident that is
// left empty closes as merged. So the incidents and their contents depend only on the final
// findings (rules/engine/incidents.h), not on the order of changes.
//
// Nothing here depends on a clock: a quiet incident is resolved by steps, and decisions of people
// or clocks arrive as an IncidentUpdate. So a replayed journal gives the same incident table.
//
// A watcher keeps a cursor into the order of changes instead of a queue. An incident that changes
// again before a watcher has read it moves to the end. So the cost of a slow watcher is limited by
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

  // Checks everything but the fingerprint.
  bool Matches(const v1::Finding& finding) const;
};

// Returns InvalidArgument if the update lacks the person, the reason, or the end of a silence.
absl::Status CheckUpdate(const v1::IncidentUpdate& update);

// Thread-safe.
class IncidentTable {
 public:
  struct Change {
    v1::Incident incident;
    v1::IncidentStatus status;
    uint64_t opened_at = 0;  // position of the incident's first change
    uint64_t revision = 0;   // changes of this incident so far, with this one
    // Closed step of its run, as reported to the table; only Get fills it in.
    int64_t closed_step = INT64_MIN;
  };
  // Calls the subscribers, although no incident has changed.
  void Wake() const;
  using OnRevision =
      std::function<void(const std::string& fingerprint, const v1::IncidentRevision& revision)>;

  // An incident that is not found again for `quiet_steps` closed steps is resolved. `unix_ns`
  // returns the time of changes.
  explicit IncidentTable(std::function<int64_t()> unix_ns, int64_t quiet_steps = 1000);
  // Subscribes to changes. `on_change` runs after each change, on the changing thread; it must be
  // quick. It may still run once during, and shortly after, Unsubscribe.
  int Subscribe(std::function<void()> on_change);
  void Unsubscribe(int subscription);
  // Sets a callback for each change that matters to people, on the changing thread.
  void SetOnRevision(OnRevision on_revision);

  // The result for a finding.
  struct Placed {
    bool opened = false;  // its incident is new
    bool shows = false;   // the finding represents its incident, and did not before at this
                          // strength
  };
  // Adds the merged finding of its fingerprint, of `count` verdicts so far.
  Placed Put(const v1::Finding& finding, uint64_t count);
  // Resolves quiet incidents, and ends silences that lasted until a step before this one.
  void StepClosed(const std::string& run, int64_t step);
  // Resolves the incidents of a rule in a run, because later evidence shows that the condition is
  // over.
  void Continued(const std::string& run, const std::string& rule, const std::string& why);
  // Resolves the incidents of a run that is over and is forgotten.
  void RunForgotten(const std::string& run);
  // Erases the incidents of a run.
  void Forget(const std::string& run);
  // Applies an update. Returns NotFound; InvalidArgument states what is missing.
  // `update.fingerprint` is complete: of an incident (if merged: the one it was merged into), or of
  // a finding in an incident.
  absl::Status Apply(const v1::IncidentUpdate& update);
  // Returns updates that end the silences whose time is over.
  std::vector<v1::IncidentUpdate> SilencesOver(int64_t unix_ns) const;

  // Returns the fingerprint of the incident with this name: the first digits of its own fingerprint
  // or of a finding's in it, or "#" and its number. Returns NotFound, or InvalidArgument if several
  // match. Only incidents of `visible` runs count; null: all.
  using Visible = std::function<bool(const std::string& run)>;
  absl::StatusOr<std::string> Resolve(const std::string& name,
                                      const Visible& visible = nullptr) const;
  // Returns the finding with this name: by its own digits, or the representative of the incident.
  // Errors as Resolve.
  absl::StatusOr<v1::Finding> FindingOf(const std::string& name,
                                        const Visible& visible = nullptr) const;
  // Returns the incident with the complete `fingerprint`.
  absl::StatusOr<Change> Get(const std::string& fingerprint) const;
  // Returns the fingerprint of the incident that holds this finding now; empty if none does.
  std::string IncidentOf(const std::string& finding_fingerprint) const;

  // Returns the position of the newest change; 0 before the first.
  uint64_t position() const;
  // Returns the identity of the table that positions belong to: a table that is rebuilt from the
  // same journal has the same one. Random in every table, unless it is set or restored.
  std::string identity() const;
  void SetIdentity(std::string identity);
  // Records that changes after position `sure` were replayed in another order (between runs) than
  // an earlier process reported them.
  void CameInAnotherOrder(uint64_t sure);
  // Returns the cursor for a reader that has seen all changes up to `position`, so that it misses
  // none.
  uint64_t CursorOf(uint64_t position) const;
  // Call before the first change.
  void SetQuietSteps(int64_t steps);

  // Returns the first change after `*cursor` that passes the filter, and moves the cursor there. If
  // there is none, moves it to the end and returns false.
  bool Next(const IncidentFilter& filter, uint64_t* cursor, Change* out) const;

  // Returns the incidents by id. Merged ones are included only if the filter's fingerprint matches;
  // a finding that the filter's fingerprint names is the one shown.
  std::vector<Change> List(const IncidentFilter& filter) const;
  uint64_t OpenIn(const std::string& run) const;  // neither resolved nor suppressed
  // Returns the number of incidents that are neither resolved nor suppressed, by rule and level.
  // `wanted`: counts only those whose shown finding it accepts; it is called under the table's
  // lock.
  using RuleCounts = std::map<std::pair<std::string, v1::Level>, uint64_t>;
  RuleCounts OpenByRule(const std::function<bool(const v1::Finding&)>& wanted = nullptr) const;

  v1::IncidentBookState Checkpoint() const;
  // Lock and unlock the table, for code that copies the process (fork): a lock held by another
  // thread would never be released in the copy.
  void Lock() const PLUMB_ACQUIRE(mutex_) { mutex_.Lock(); }
  void Unlock() const PLUMB_RELEASE(mutex_) { mutex_.Unlock(); }
  void Restore(const v1::IncidentBookState& state);  // the table must be empty

 private:
  struct Entry;
  struct Member {
    v1::Finding finding;
    uint64_t count = 0;
    uint32_t ranks = 0;
    bool whole = false;  // false: fields that only its own page shows were removed
    Entry* entry = nullptr;
  };
  struct ShownFirst {
    bool operator()(const Member* a, const Member* b) const;
  };
  struct Entry {
    // Its finding is set only if no member is left.
    v1::Incident incident;
    v1::IncidentStatus status;
    uint64_t opened_at = 0;
    uint64_t changed_at = 0;
    std::set<Member*, ShownFirst> members;
    size_t whole = 0;                // members that are complete
    const Member* newest = nullptr;  // the member added last; null: it has moved to another
                                     // incident

    const v1::Finding& shown() const {
      return members.empty() ? incident.finding() : (*members.begin())->finding;
    }
    bool over() const { return incident.state() == v1::Incident::STATE_RESOLVED; }
    bool merged() const { return !status.merged_into().empty(); }
  };
  struct Run {
    int64_t closed_step = INT64_MIN;
    int64_t due = INT64_MAX;  // the first step at which an incident may change by itself
    std::vector<Entry*> entries;
  };
  // Callbacks of a change, called once the lock is released.
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
  void Report(const Entry& entry, Revision::Change change, const std::string& who,
              const std::string& reason, PendingCalls* pending) const PLUMB_REQUIRES(mutex_);
  static void SetState(Entry* entry, v1::Incident::State state);
  int64_t DueOf(const Entry& entry) const;
  bool ByItself(Entry* entry, int64_t step, PendingCalls* pending) PLUMB_REQUIRES(mutex_);
  int64_t QuietOf(const Entry& entry) const;
  void NoteApart(Entry* to, bool fresh, int64_t step) const;
  PendingCalls CallsNow() const PLUMB_REQUIRES(mutex_);
  static void Make(const PendingCalls& pending);

  // incident_names.cc: look-up by name
  static Change ChangeOf(const Entry& entry);
  Entry* Meant(const std::string& fingerprint) PLUMB_REQUIRES(mutex_);
  static const Member* Named(const Entry& entry, const std::string& prefix);
  static bool Requested(const Entry& entry, const std::string& prefix);

  // incident_gather.cc: findings are added and move
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
  // Positions after it, up to the next one, are unreliable.
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
