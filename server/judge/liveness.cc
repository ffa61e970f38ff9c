#include "server/judge/liveness.h"

#include <algorithm>
#include <set>
#include <utility>

namespace plumbline::server {
namespace {

using Nanos = Liveness::Nanos;

constexpr size_t kSteps = 33;  // whose median is taken
constexpr size_t kLeastSteps = 5;
constexpr int64_t kFirstSteps = 3;  // of a process: they compile
constexpr double kMedians = 5;
constexpr int kErrorFactor = 30;  // where nobody can be named
constexpr std::chrono::hours kForget{1};

double Median(std::deque<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Nanos Seconds(double s) { return Nanos(static_cast<int64_t>(s * 1e9)); }

bool Declared(v1::Span::Kind kind) {
  return kind == v1::Span::KIND_CHECKPOINT || kind == v1::Span::KIND_EVALUATION ||
         kind == v1::Span::KIND_COMPILE;
}

void AddRanks(const std::vector<v1::Source>& sources,
              google::protobuf::RepeatedField<uint32_t>* ranks) {
  for (const v1::Source& source : sources) ranks->Add(source.rank());
}

}  // namespace

void Liveness::Joined(const v1::Hello& hello, uint64_t connection, Time now) {
  std::lock_guard lock(mutex_);
  // A new process of a rank takes the place of the one that ended.
  for (auto at = processes_.begin(); away_ && at != processes_.end();) {
    const Process& other = at->second;
    const bool same =
        at->first != hello.stream_id() && !other.connected &&
        std::any_of(hello.sources().begin(), hello.sources().end(), [&](const v1::Source& s) {
          return std::any_of(other.sources.begin(), other.sources.end(), [&](const v1::Source& o) {
            return s.run() == o.run() && s.role() == o.role() && s.rank() == o.rank();
          });
        });
    at = same ? processes_.erase(at) : std::next(at);
  }
  Process& process = processes_[hello.stream_id()];
  if (process.connection > connection) return;
  process.connection = connection;
  process.sources = {hello.sources().begin(), hello.sources().end()};
  process.connected = true;
  process.unreachable = false;
  process.heard = now;
}

void Liveness::Left(uint64_t stream_id, uint64_t connection, Time now) {
  std::lock_guard lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end() || found->second.connection != connection) return;
  Process& process = found->second;
  if (process.finished) {
    processes_.erase(found);
    return;
  }
  process.connected = false;
  process.left = now;
  away_ = true;
  process.unreachable = now - process.heard > kSilent;
}

void Liveness::Advance(Process* process, int64_t newest, Time now) {
  process->heard = now;
  if (newest <= process->newest) return;
  process->newest = newest;
  process->moved = now;
}

void Liveness::Heard(uint64_t stream_id, const v1::Batch& batch, Time now) {
  std::lock_guard lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  process.heard = now;
  bool finished = !batch.progress().empty();
  for (const v1::Progress& progress : batch.progress()) {
    Advance(&process, progress.newest_step(), now);
    finished &= progress.finished();
  }
  process.finished |= finished && batch.progress_size() >= static_cast<int>(process.sources.size());
}

void Liveness::Heard(uint64_t stream_id, const v1::Heartbeat& beat, Time now) {
  std::lock_guard lock(mutex_);
  const auto found = processes_.find(stream_id);
  if (found == processes_.end()) return;
  Process& process = found->second;
  process.heard = process.beat = now;
  if (beat.any_step()) Advance(&process, beat.newest_step(), now);
  process.tells = beat.still_ns() > 0;
  process.still_since =
      now - Nanos(static_cast<int64_t>(std::min<uint64_t>(beat.still_ns(), uint64_t{1} << 55)));
  process.ended = beat.steps_ended();
  process.stage = beat.open_stage();
}

void Liveness::Forget(const std::string& run) {
  std::lock_guard lock(mutex_);
  std::erase_if(processes_, [&](const auto& p) {
    const auto& sources = p.second.sources;
    return !sources.empty() && std::all_of(sources.begin(), sources.end(),
                                           [&](const v1::Source& s) { return s.run() == run; });
  });
  std::erase_if(groups_, [&](const auto& g) { return std::get<0>(g.first) == run; });
}

// How long a step takes, while steps go on.
void Liveness::Measure(Group* group, int64_t newest, Time now) {
  if (newest <= group->newest) return;
  if (group->newest >= 0) {
    const std::chrono::duration<double> took = now - group->newest_at;
    group->steps.push_back(took.count() / static_cast<double>(newest - group->newest));
    if (group->steps.size() > kSteps) group->steps.pop_front();
    group->longest = std::max(group->longest, std::exchange(group->pause, Nanos(0)));
  }
  group->newest = newest;
  group->newest_at = now;
  group->told = group->told_error = false;
}

std::vector<v1::RanksHung> Liveness::Look(Time now) {
  std::lock_guard lock(mutex_);
  std::erase_if(processes_, [&](const auto& p) {
    return !p.second.connected && now - p.second.left > kForget;
  });
  away_ = std::any_of(processes_.begin(), processes_.end(),
                      [](const auto& p) { return !p.second.connected; });
  std::map<std::pair<std::string, int>, uint32_t> attempts;
  for (const auto& [id, process] : processes_) {
    for (const v1::Source& s : process.sources) {
      uint32_t& newest = attempts[{s.run(), s.role()}];
      newest = std::max(newest, s.attempt());
    }
  }
  std::map<Key, Members> members;
  for (const auto& [id, process] : processes_) {
    std::set<Key> keys;
    for (const v1::Source& s : process.sources) {
      if (s.attempt() == attempts[{s.run(), s.role()}])
        keys.insert({s.run(), s.attempt(), s.role()});
    }
    if (process.finished) continue;
    for (const Key& key : keys) members[key].all.push_back(&process);
  }
  std::erase_if(groups_, [&](const auto& g) { return members.count(g.first) == 0; });
  std::vector<v1::RanksHung> told;
  for (auto& [key, m] : members) {
    Group& group = groups_[key];
    m.group = &group;
    int64_t newest = -1;
    for (const Process* p : m.all) newest = std::max(newest, p->newest);
    Measure(&group, newest, now);
    v1::RanksHung hung;
    if (!Judge(key, m, now, &hung)) continue;
    group.pause = std::max(group.pause, Nanos(static_cast<int64_t>(hung.still_ns())));
    const bool named = !hung.ranks().empty() && !hung.waiting().empty();
    const bool error = named || hung.still_ns() >= hung.error_ns();
    if (hung.still_ns() < hung.threshold_ns() || (group.told && (!error || group.told_error))) {
      continue;
    }
    group.told = true;
    group.told_error |= error;
    told.push_back(std::move(hung));
  }
  return told;
}

// Does the whole group stand? Then for how long at least, and because of whom. False: it goes on,
// or that is not known.
bool Liveness::Judge(const Key& key, const Members& members, Time now, v1::RanksHung* out) const {
  const Group& group = *members.group;
  if (group.steps.size() < kLeastSteps) return false;
  Nanos still = Nanos::max();
  int64_t first = INT64_MAX, last = -1;
  v1::RanksHung::Cause cause = v1::RanksHung::CAUSE_STUCK;
  std::vector<const Process*> lost, standing;
  for (const Process* p : members.all) {
    if (!p->connected) {
      lost.push_back(p);
      still = std::min<Nanos>(still, now - p->left);
      continue;
    }
    const bool known = p->tells && p->beat > p->moved && now - p->heard <= kSilent;
    if (!known || p->ended < kFirstSteps || Declared(p->stage)) return false;
    still = std::min<Nanos>(still, now - p->still_since);
    first = std::min(first, p->newest);
    last = std::max(last, p->newest);
    standing.push_back(p);
  }
  if (standing.empty()) return false;  // nobody waits
  const double median = Median(group.steps);
  out->set_run(std::get<0>(key));
  out->set_attempt(std::get<1>(key));
  out->set_role(static_cast<v1::Role>(std::get<2>(key)));
  if (!lost.empty()) {
    cause = v1::RanksHung::CAUSE_UNREACHABLE;
    for (const Process* p : lost) {
      if (!p->unreachable) cause = v1::RanksHung::CAUSE_GONE;
      AddRanks(p->sources, out->mutable_ranks());
      first = std::min(first, p->newest);
    }
  }
  const bool apart = lost.empty() && first < last;
  for (const Process* p : standing) {
    const bool culprit = (apart && p->newest == first) || (lost.empty() && members.all.size() == 1);
    AddRanks(p->sources, culprit ? out->mutable_ranks() : out->mutable_waiting());
  }
  std::sort(out->mutable_ranks()->begin(), out->mutable_ranks()->end());
  std::sort(out->mutable_waiting()->begin(), out->mutable_waiting()->end());
  const Nanos threshold = std::max({hang_, Seconds(kMedians * median), 2 * group.longest});
  const Nanos error =
      std::max({kErrorFactor * hang_, Seconds(kErrorFactor * median), 3 * group.longest});
  out->set_cause(cause);
  out->set_step(std::max<int64_t>(first, 0));
  out->set_still_ns(static_cast<uint64_t>(std::max<int64_t>(still.count(), 0)));
  out->set_threshold_ns(static_cast<uint64_t>(threshold.count()));
  out->set_error_ns(static_cast<uint64_t>(error.count()));
  out->set_step_ns(static_cast<uint64_t>(median * 1e9));
  out->set_longest_ns(static_cast<uint64_t>(group.longest.count()));
  return true;
}

std::map<std::string, uint64_t> Liveness::States(const std::string& run, Time now) const {
  std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> states;
  for (const auto& [id, p] : processes_) {
    const auto of_run = std::count_if(p.sources.begin(), p.sources.end(),
                                      [&](const v1::Source& s) { return s.run() == run; });
    if (of_run == 0 || p.finished) continue;
    const bool still = p.tells && p.beat > p.moved && now - p.still_since > hang_;
    const char* state = !p.connected              ? (p.unreachable ? "unreachable" : "gone")
                        : now - p.heard > kSilent ? "silent"
                        : Declared(p.stage)       ? "late"
                        : still                   ? "still"
                                                  : "running";
    states[state] += static_cast<uint64_t>(of_run);
  }
  return states;
}

}  // namespace plumbline::server
