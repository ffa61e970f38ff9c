#include "server/stream/liveness.h"

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/stream/rank_key.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostPaces = 4096;

using Nanos = Liveness::Nanos;

constexpr size_t kStepsOfMedian = 33;  // whose median is taken
constexpr int64_t kFirstSteps = 3;     // first steps of a process, in which it compiles
constexpr double kMedians = 5;
constexpr int kErrorFactor = 30;  // if no rank can be named
// Factor of the limit if the pace is unknown: five minutes, half of the time limit of PyTorch's
// NCCL backend. A step that compiles again is over by then.
constexpr int kNoPaceFactor = 30;
constexpr std::chrono::hours kForget{1};

Nanos Seconds(double s) { return Nanos(static_cast<int64_t>(s * 1e9)); }

bool Declared(v1::Span::Kind kind) {
  return kind == v1::Span::KIND_CHECKPOINT || kind == v1::Span::KIND_EVALUATION ||
         kind == v1::Span::KIND_COMPILE || kind == v1::Span::KIND_PAUSE;
}

// Returns true between two steps or two stages of one, if no span is open.
bool Idle(v1::Span::Kind kind) { return kind == v1::Span::KIND_OTHER; }

void AddRanks(const std::vector<v1::Source>& sources,
              google::protobuf::RepeatedField<uint32_t>* ranks) {
  for (const v1::Source& source : sources) ranks->Add(source.rank());
}

}  // namespace

void Liveness::Joined(const v1::Hello& hello, uint64_t connection, Time now) {
  const MutexLock lock(mutex_);
  const uint64_t id = hello.stream_id();
  const auto known = processes_.find(id);
  if (known != processes_.end() && known->second.connection > connection) return;
  // A new process of a rank replaces the one that ended.
  std::set<uint64_t> ended;
  for (const v1::Source& source : hello.sources()) {
    const auto others = by_rank_.find(RankKey(source));
    if (others == by_rank_.end()) continue;
    for (const uint64_t other : others->second) {
      if (other != id && !processes_.at(other).connected) ended.insert(other);
    }
  }
  for (const uint64_t other : ended) Erase(other);
  Unlist(id);
  const bool fresh = processes_.count(id) == 0;
  Process& process = processes_[id];
  if (fresh) {
    process.joined = now;
    if (hello.has_state()) process.ended_before = hello.state().steps_ended();
  }
  process.connection = connection;
  process.sources = {hello.sources().begin(), hello.sources().end()};
  process.connected = true;
  process.unreachable = false;
  process.heard = now;
  List(id, &process);
}

// Indexes the process by its ranks and runs.
void Liveness::List(uint64_t id, Process* process) {
  std::set<Key> groups;
  for (const v1::Source& source : process->sources) {
    by_rank_[RankKey(source)].insert(id);
    by_run_[source.run()].insert(id);
    ++process->ranks_by_run[source.run()];
    groups.emplace(source.run(), source.attempt(), source.role());
  }
  process->groups.assign(groups.begin(), groups.end());
}

void Liveness::Unlist(uint64_t id) {
  const auto found = processes_.find(id);
  if (found == processes_.end()) return;
  const auto take_out = [id](auto* lists, const std::string& key) {
    const auto list = lists->find(key);
    if (list != lists->end() && list->second.erase(id) > 0 && list->second.empty())
      lists->erase(list);
  };
  for (const v1::Source& source : found->second.sources) take_out(&by_rank_, RankKey(source));
  for (const auto& [run, ranks] : found->second.ranks_by_run) take_out(&by_run_, run);
  found->second.ranks_by_run.clear();
}

void Liveness::Erase(uint64_t id) {
  Unlist(id);
  processes_.erase(id);
}

void Liveness::Left(uint64_t stream_id, uint64_t connection, Time now) {
  const MutexLock lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end() || found->second.connection != connection) return;
  Process& process = found->second;
  if (process.finished) {
    Erase(stream_id);
    return;
  }
  process.connected = false;
  process.left = now;
  process.unreachable = now - process.heard > kSilent;
}

void Liveness::Advance(Process* process, int64_t newest, Time now) {
  process->heard = now;
  if (newest <= process->newest) return;
  if (process->newest < 0) process->first = newest;
  process->newest = newest;
  process->moved = now;
}

void Liveness::Heard(uint64_t stream_id, const v1::Batch& batch, Time now) {
  const MutexLock lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  process.heard = now;
  bool finished = !batch.progress().empty();
  for (const v1::Progress& progress : batch.progress()) {
    Advance(&process, progress.newest_step(), now);
    finished &= progress.finished();
    if (progress.any_step())
      process.complete = std::max(process.complete, progress.complete_through());
  }
  process.finished |= finished && batch.progress_size() >= static_cast<int>(process.sources.size());
}

void Liveness::Heard(uint64_t stream_id, const v1::Heartbeat& beat, Time now) {
  const MutexLock lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  process.heard = process.beat = now;
  if (beat.any_step()) Advance(&process, beat.newest_step(), now);
  process.reports = beat.still_ns() > 0;
  process.still_since =
      now - Nanos(static_cast<int64_t>(std::min<uint64_t>(beat.still_ns(), uint64_t{1} << 55)));
  process.ended = beat.steps_ended();
  if (process.ended_before < 0) process.ended_before = process.ended;
  process.stage = beat.open_stage();
  if (Declared(process.stage)) process.excused = now;
  process.in_step = beat.in_step();
  process.last_stage = beat.last_stage();
}

void Liveness::Forget(const std::string& run) {
  const MutexLock lock(mutex_);
  const auto of_run = by_run_.find(run);
  for (const uint64_t id : of_run == by_run_.end() ? std::set<uint64_t>() : of_run->second) {
    if (processes_.at(id).ranks_by_run.size() == 1) Erase(id);
  }
  const auto first = groups_.lower_bound(Key(run, 0, INT_MIN));
  const auto last = groups_.upper_bound(Key(run, UINT32_MAX, INT_MAX));
  for (auto group = first; group != last; ++group) KeepPace(group->first, group->second);
  groups_.erase(first, last);
}

void Liveness::KeepPace(const Key& key, const Group& group) {
  if (std::get<2>(key) != v1::ROLE_TRAINER) return;
  over_.emplace_back(key, PaceOf(group));
  if (over_.size() > kMostPaces) over_.pop_front();
}

// Measures how long a step takes, while steps progress.
void Liveness::Measure(Group* group, int64_t newest, Time now) {
  if (newest <= group->newest) return;
  if (group->newest >= 0) {
    const std::chrono::duration<double> took = now - group->newest_at;
    group->steps.push_back(took.count() / static_cast<double>(newest - group->newest));
    if (group->steps.size() > kStepsOfMedian) group->steps.pop_front();
    group->longest = std::max(group->longest, std::exchange(group->pause, Nanos(0)));
  }
  group->newest = newest;
  group->newest_at = now;
  group->reported = group->reported_error = false;
  group->stop_ordered = group->stop_ordered_error = false;
}

std::vector<v1::RanksHung> Liveness::Look(Time now, std::vector<v1::StepsStopped>* stopped) {
  const MutexLock lock(mutex_);
  std::vector<uint64_t> forgotten;
  for (const auto& [id, process] : processes_) {
    if (!process.connected && now - process.left > kForget) forgotten.push_back(id);
  }
  for (const uint64_t id : forgotten) Erase(id);
  std::map<std::pair<std::string_view, int>, uint32_t> attempts;
  for (const auto& [id, process] : processes_) {
    for (const auto& [run, attempt, role] : process.groups) {
      uint32_t& newest = attempts[{run, role}];
      newest = std::max(newest, attempt);
    }
  }
  std::map<Key, Members> members;
  for (const auto& [id, process] : processes_) {
    if (process.finished) continue;
    for (const Key& key : process.groups) {
      const auto& [run, attempt, role] = key;
      if (attempt == attempts[{run, role}]) members[key].all.push_back(&process);
    }
  }
  std::erase_if(groups_, [&](const auto& g) { return members.count(g.first) == 0; });
  std::vector<v1::RanksHung> reported;
  for (auto& [key, m] : members) {
    Group& group = groups_[key];
    m.group = &group;
    int64_t newest = -1;
    for (const Process* p : m.all) newest = std::max(newest, p->newest);
    Measure(&group, newest, now);
    if (stopped != nullptr) LookBetween(key, m, now, stopped);
    v1::RanksHung hung;
    if (!Judge(key, m, now, &hung)) continue;
    group.pause = std::max(group.pause, Nanos(static_cast<int64_t>(hung.still_ns())));
    const bool named = !hung.ranks().empty() && !hung.waiting().empty();
    const bool error = named || hung.still_ns() >= hung.error_ns();
    if (hung.still_ns() < hung.threshold_ns() ||
        (group.reported && (!error || group.reported_error))) {
      continue;
    }
    group.reported = true;
    group.reported_error |= error;
    reported.push_back(std::move(hung));
  }
  return reported;
}

// Returns a number that grows with progress: within a step, or after its end.
int64_t Liveness::PlaceOf(const Process& p) {
  const bool within = p.complete >= 0 && p.complete < p.newest;
  return 2 * p.newest + (Idle(p.stage) && !within ? 1 : 0);
}

// Sorts the processes of a group into blocked and lost ones, and computes for how long this has
// lasted at least. Returns false if one of them progresses, or if that is unknown.
bool Liveness::Sort(const Members& members, Time now, Standing* out) {
  std::vector<const Process*> silent;
  Time others{};  // all are blocked since then
  for (const Process* p : members.all) {
    if (!p->connected) {
      out->lost.push_back(p);
      out->still = std::min<Nanos>(out->still, now - (p->unreachable ? p->heard : p->left));
      continue;
    }
    // A busy process sends no heartbeats, so its last one may be out of date.
    const bool stated = p->beat > p->moved;
    if (stated && Declared(p->stage)) return false;
    if (now - p->heard > kSilent) {
      if (std::max(p->ended, p->newest - p->first) < kFirstSteps) return false;
      silent.push_back(p);
      continue;
    }
    if (!p->reports || !stated || p->ended < kFirstSteps) return false;
    others = std::max(others, p->still_since);
    out->standing.push_back(p);
  }
  // A process that was stopped, or whose network was lost, stays connected for a long time. Such a
  // process blocks the others if it fell silent before they were blocked, or at about that time.
  for (const Process* p : silent) {
    if (out->standing.empty() || p->heard > others + kSilent) return false;
    out->lost.push_back(p);
    out->still = std::min<Nanos>(out->still, now - p->heard);
  }
  for (const Process* p : out->standing)
    out->still = std::min<Nanos>(out->still, now - p->still_since);
  // No process waits if all are gone or idle.
  return !std::all_of(out->standing.begin(), out->standing.end(),
                      [](const Process* p) { return Idle(p->stage); });
}

// Returns true if the whole group is blocked. `out` then gets for how long at least, and the ranks
// that cause it. Returns false if the group progresses, if that is unknown, or if the group has no
// step to continue with.
bool Liveness::Judge(const Key& key, const Members& members, Time now, v1::RanksHung* out) const {
  Standing now_stand;
  if (!Sort(members, now, &now_stand)) return false;
  const auto& [lost, standing, still] = now_stand;
  int64_t first = INT64_MAX, last = -1, step = INT64_MAX;
  for (const Process* p : standing) {
    first = std::min(first, PlaceOf(*p));
    last = std::max(last, PlaceOf(*p));
    step = std::min(step, p->newest);
  }
  out->set_run(std::get<0>(key));
  out->set_attempt(std::get<1>(key));
  out->set_role(static_cast<v1::Role>(std::get<2>(key)));
  v1::RanksHung::Cause cause = v1::RanksHung::CAUSE_STUCK;
  if (!lost.empty()) {
    cause = v1::RanksHung::CAUSE_UNREACHABLE;
    for (const Process* p : lost) {
      if (!p->connected && !p->unreachable) cause = v1::RanksHung::CAUSE_GONE;
      AddRanks(p->sources, out->mutable_ranks());
      step = std::min(step, p->newest);
    }
  }
  const bool apart = lost.empty() && first < last;
  const auto waits = [](const Process* p) { return p->stage == v1::Span::KIND_COLLECTIVE; };
  const bool some_wait =
      lost.empty() && !apart && std::any_of(standing.begin(), standing.end(), waits);
  const bool all_wait = std::all_of(standing.begin(), standing.end(), waits);
  // Among the ranks that are least far, those that wait are waiting for the others.
  const auto late = [&](const Process* p) { return apart && PlaceOf(*p) == first; };
  const bool all_late_wait = std::all_of(standing.begin(), standing.end(),
                                         [&](const Process* p) { return !late(p) || waits(p); });
  for (const Process* p : standing) {
    const bool culprit = (late(p) && (all_late_wait || !waits(p))) ||
                         (lost.empty() && members.all.size() == 1) ||
                         (some_wait && !all_wait && !waits(p));
    if (culprit) {
      AddRanks(p->sources, out->mutable_ranks());
    } else if (!Idle(p->stage)) {
      AddRanks(p->sources, out->mutable_waiting());
    }
  }
  std::sort(out->mutable_ranks()->begin(), out->mutable_ranks()->end());
  std::sort(out->mutable_waiting()->begin(), out->mutable_waiting()->end());
  NamePlace(members, out);
  out->set_cause(cause);
  out->set_step(std::max<int64_t>(step, 0));
  out->set_still_ns(static_cast<uint64_t>(std::max<int64_t>(still.count(), 0)));
  SetLimits(*members.group, out);
  return true;
}

// Returns seconds; 0 if too few steps were seen.
double Liveness::MedianStep(const Group& group) {
  if (group.steps.size() < kLeastSteps) return 0;
  std::deque<double> values = group.steps;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return std::max(*middle, 1e-9);
}

// Sets the time after which a hang is reported, and the time after which it is an error.
void Liveness::SetLimits(const Group& group, v1::RanksHung* out) const {
  const double median = MedianStep(group);
  const bool paced = median > 0;
  const Nanos threshold = std::max(
      {(paced ? 1 : kNoPaceFactor) * hang_, Seconds(kMedians * median), 2 * group.longest});
  const Nanos error =
      std::max({kErrorFactor * hang_, Seconds(kErrorFactor * median), 3 * group.longest});
  out->set_threshold_ns(static_cast<uint64_t>(threshold.count()));
  out->set_error_ns(static_cast<uint64_t>(error.count()));
  out->set_step_ns(static_cast<uint64_t>(median * 1e9));
  out->set_longest_ns(static_cast<uint64_t>(group.longest.count()));
}

Liveness::Pace Liveness::PaceOf(const std::string& run, uint32_t attempt) const {
  const MutexLock lock(mutex_);
  const Key key(run, attempt, v1::ROLE_TRAINER);
  if (const auto group = groups_.find(key); group != groups_.end()) {
    // After a restart of the server the first steps give no median.
    if (const Pace pace = PaceOf(group->second); pace.step_seconds > 0) return pace;
  }
  const auto over =
      std::find_if(over_.rbegin(), over_.rend(), [&](const auto& one) { return one.first == key; });
  return over == over_.rend() ? Pace() : over->second;
}

Liveness::Paces Liveness::AllPaces() const {
  const MutexLock lock(mutex_);
  Paces paces = over_;
  for (const auto& [key, group] : groups_) {
    const Pace pace = PaceOf(group);
    if (std::get<2>(key) == v1::ROLE_TRAINER && pace.step_seconds > 0)
      paces.emplace_back(key, pace);
  }
  while (paces.size() > kMostPaces) paces.pop_front();
  return paces;
}

void Liveness::Restore(Paces paces) {
  const MutexLock lock(mutex_);
  over_ = std::move(paces);
  while (over_.size() > kMostPaces) over_.pop_front();
}

Liveness::Pace Liveness::PaceOf(const Group& group) {
  return {MedianStep(group), 1e-9 * static_cast<double>(group.longest.count())};
}

std::map<std::string, uint64_t> Liveness::States(const std::string& run, Time now) const {
  const MutexLock lock(mutex_);
  std::map<std::string, uint64_t> states;
  const auto listed = by_run_.find(run);
  if (listed == by_run_.end()) return states;
  for (const uint64_t id : listed->second) {
    const Process& p = processes_.at(id);
    if (p.finished) continue;
    const bool still = p.reports && p.beat > p.moved && now - p.still_since > hang_;
    const char* state = !p.connected              ? (p.unreachable ? "unreachable" : "gone")
                        : now - p.heard > kSilent ? "silent"
                        : Declared(p.stage)       ? "late"
                        : still && Idle(p.stage)  ? "idle"
                        : still                   ? "still"
                                                  : "running";
    states[state] += p.ranks_by_run.at(run);
  }
  return states;
}

}  // namespace plumbline::server
