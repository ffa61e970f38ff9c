#include "server/stream/run_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "base/printable.h"
#include "rules/engine/series.h"

namespace plumbline::server {

RunTable::Run& RunTable::RunOf(const v1::Source& source, int64_t unix_ns) {
  auto [found, fresh] = runs_.try_emplace(source.run());
  Run& run = found->second;
  if (fresh) {
    run.info.set_run(source.run());
    run.info.set_first_seen_unix_ns(unix_ns);
    run.info.set_newest_step(-1);
    run.info.set_closed_step(-1);
    run.attempt = source.attempt();
  }
  run.info.set_last_seen_unix_ns(unix_ns);
  return run;
}

// Adds the rank, unless it belongs to an attempt that a later one has superseded.
void RunTable::Touch(Run& run, uint64_t stream_id, const v1::Source& source, Time now) {
  if (source.attempt() < run.attempt) return;
  const Rank key{source.role(), source.rank()};
  const auto known = run.ranks.find(key);
  const bool same_process = known != run.ranks.end() && known->second.stream_id == stream_id;
  // A new process after the run was over starts the run again, without its old ranks.
  if (source.attempt() > run.attempt || (run.ended && !same_process)) {
    run.attempt = source.attempt();
    run.ranks.clear();
    run.roles.clear();
    run.reborn = run.died;
    run.stopped_step = -1;  // any next step counts as progress
    run.unstuck |= !run.stuck.empty();
    run.stuck.clear();
    run.waits.clear();
    run.bad_ends = false;
    run.forgotten = false;
  }
  const auto [role, fresh] = run.roles.try_emplace(source.role());
  if (fresh) role->second.since = role->second.changed = now;
  role->second.world = std::max(role->second.world, source.world_size());
  RankState& rank = run.ranks[key];
  if (rank.stream_id != stream_id) {  // this process replaces the rank's earlier one
    run.reborn |= run.died && rank.stream_id != 0;
    rank = RankState();
    rank.stream_id = stream_id;
    rank.source = source;
    rank.connected = true;
    rank.since = rank.heard = rank.flowed = now;
  }
  run.ended = false;
}

// Waits for every rank during the grace: each is reported as gone again if it does not come.
void RunTable::ExpectAgain(Run& run, Time now) const {
  for (auto& [id, role] : run.roles) {
    role.absent_gone = false;
    role.since = role.changed = now;
  }
  for (auto& [key, rank] : run.ranks) {
    if (rank.connected) continue;
    rank.finished = rank.gone = false;
    rank.server_left = rank.unreachable = true;  // its end was already reported
    rank.deadline = now + grace_;
  }
}

// Returns nullptr unless `stream_id` belongs to the rank in the newest attempt.
RunTable::RankState* RunTable::Find(Run& run, uint64_t stream_id, const v1::Source& source) {
  if (source.attempt() != run.attempt) return nullptr;
  const auto rank = run.ranks.find({source.role(), source.rank()});
  return rank == run.ranks.end() || rank->second.stream_id != stream_id ? nullptr : &rank->second;
}

void RunTable::Report(const Role& role, RankState& rank, bool backlog, Time now) const {
  rank.heard = now;
  rank.backlog = backlog;
  rank.clear_at = backlog ? kNever : role.newest;
  const bool after = !backlog && role.newest != kNever &&
                     (rank.through == kNever || rank.through < role.newest - window_ / 2);
  rank.slow_since = after ? std::min(rank.slow_since, now) : Time::max();
}

void RunTable::Connected(uint64_t stream_id, const v1::Source& source, bool backlog, Time now,
                         int64_t unix_ns) {
  Run& run = RunOf(source, unix_ns);
  Touch(run, stream_id, source, now);
  if (RankState* rank = Find(run, stream_id, source)) {
    run.reborn |= run.died && rank->gone;
    rank->connected = true;
    rank->queued = backlog;
    rank->gone = rank->server_left = rank->unreachable = false;
    rank->since = rank->flowed = now;
    Report(run.roles[source.role()], *rank, backlog, now);
  }
}

void RunTable::AccountItems(const v1::Batch& batch, const std::vector<Run*>& by_source) {
  for (const v1::Evidence& e : batch.evidence()) {
    v1::RunInfo& info = by_source[e.source()]->info;
    info.set_evidence(info.evidence() + 1);
    info.set_newest_step(std::max(info.newest_step(), e.step()));
  }
  for (const v1::SeriesRows& rows : batch.series()) {
    for (int row = 0; row < rows.step_size(); ++row) {
      const uint32_t source = rows.source(rows.source_size() == 1 ? 0 : row);
      v1::RunInfo& info = by_source[source]->info;
      info.set_evidence(info.evidence() + rules::CountPresent(rows, row));
      info.set_newest_step(std::max(info.newest_step(), rows.step(row)));
    }
  }
  for (const v1::Loss& loss : batch.losses()) {
    v1::RunInfo& info = by_source[loss.source()]->info;
    info.set_lost(info.lost() + loss.count());
    (*info.mutable_lost_by_cause())[loss.cause()] += loss.count();
  }
}

void RunTable::Account(uint64_t stream_id, const v1::Batch& batch, bool backlog, Time now,
                       int64_t unix_ns) {
  std::vector<Run*> by_source;
  by_source.reserve(static_cast<size_t>(batch.sources_size()));
  // For the rules this is the first batch of a run that they have forgotten.
  const bool begins =
      !batch.evidence().empty() || !batch.series().empty() || !batch.progress().empty();
  for (const v1::Source& source : batch.sources()) {
    by_source.push_back(&RunOf(source, unix_ns));
    Touch(*by_source.back(), stream_id, source, now);
    if (!begins) continue;
    by_source.back()->judged = false;
    if (std::exchange(by_source.back()->forgotten, false)) ExpectAgain(*by_source.back(), now);
  }
  AccountItems(batch, by_source);
  for (const v1::Progress& progress : batch.progress()) {
    Run& run = *by_source[progress.source()];
    run.info.set_newest_step(std::max(run.info.newest_step(), progress.newest_step()));
    const v1::Source& source = batch.sources(static_cast<int>(progress.source()));
    RankState* rank = Find(run, stream_id, source);
    if (rank == nullptr) continue;
    rank->process |= source.pid() != 0;
    if (run.info.owner().empty()) run.info.set_owner(source.user());
    rank->queued = backlog;
    run.reborn |= run.died && rank->gone;
    NoteProgress(run, source, progress, unix_ns);
    Role& role = run.roles[source.role()];
    const int64_t newest = progress.newest_step();  // any number: it comes from outside
    if (newest >= 0) role.newest = std::max(role.newest, newest);
    rank->finished |= progress.finished();
    const int64_t through = progress.any_step() ? progress.complete_through() : kNever;
    if (through > rank->through) {
      rank->through = through;
      rank->flowed = now;
      rank->overtaken = Time::max();
      role.furthest = std::max(role.furthest, through);
    }
    // If the rank has progressed further than its sent evidence, more evidence will come, even if
    // it reports that no batch waits.
    const bool more =
        rank->through != kNever && newest > rank->through && newest - 1 > rank->through;
    Report(role, *rank, backlog || more, now);
  }
  for (int i = 0; batch.progress().empty() && i < batch.sources_size(); ++i) {
    if (RankState* rank = Find(*by_source[static_cast<size_t>(i)], stream_id, batch.sources(i)))
      rank->heard = now;
  }
}

void RunTable::Beat(uint64_t stream_id, const v1::Source& source, bool backlog, Time now) {
  const auto run = runs_.find(source.run());
  if (run == runs_.end()) return;
  RankState* rank = Find(run->second, stream_id, source);
  if (rank == nullptr) return;
  rank->queued = backlog;
  Report(run->second.roles[source.role()], *rank, backlog, now);
}

void RunTable::Disconnected(uint64_t stream_id, const v1::Source& source, Time now, bool ended) {
  const auto run = runs_.find(source.run());
  if (run == runs_.end()) return;
  RankState* rank = Find(run->second, stream_id, source);
  if (rank == nullptr) return;
  // A rank that reconnects and delivers nothing is awaited only as long as a rank that stays away.
  const bool was_there = rank->flowed > rank->since || now - rank->since >= grace_;
  if (was_there || rank->deadline == Time()) rank->deadline = now + grace_;
  rank->connected = false;
  rank->server_left = false;
  // The unsent message may have been its goodbye.
  rank->unreachable = !ended || rank->queued || now - rank->heard > kSilent;
}

void RunTable::DisconnectAll(Time now) {
  for (auto& [name, run] : runs_) {
    for (auto& [id, role] : run.roles) role.since = role.changed = now;
    for (auto& [key, rank] : run.ranks) {
      rank.connected = false;
      rank.server_left = true;
      rank.deadline = now + grace_;
    }
  }
  ranks_over_at_most_ = kMostRanksOver + 1;  // not counted yet
  ForgetRanksOver();
}

void RunTable::EndGrace(const std::string& run, Time now) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  for (auto& [key, rank] : found->second.ranks) {
    if (!rank.connected) rank.deadline = std::min(rank.deadline, now);
  }
}

void RunTable::SetGone(const v1::RanksGone& gone) {
  for (const v1::Source& source : gone.sources()) {
    const auto run = runs_.find(source.run());
    if (run == runs_.end() || source.attempt() != run->second.attempt) continue;
    if (gone.cause() == v1::RanksGone::CAUSE_NEVER_CAME) {
      run->second.roles[source.role()].absent_gone = true;
      continue;
    }
    const auto rank = run->second.ranks.find({source.role(), source.rank()});
    if (rank == run->second.ranks.end()) continue;
    rank->second.gone = true;
    const bool broke = gone.cause() == v1::RanksGone::CAUSE_STREAM_BROKEN;
    run->second.bad_ends |= broke && rank->second.process && !rank->second.unreachable;
  }
}

void RunTable::SetEnded(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  found->second.ended = found->second.judged = true;
  ranks_over_at_most_ += found->second.ranks.size();
  ForgetRanksOver();
}

void RunTable::SetForgotten(const std::string& run) {
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.forgotten = found->second.ended;
}

size_t RunTable::ranks_over() const {
  size_t ranks = 0;
  for (const auto& [name, run] : runs_) ranks += run.ended ? run.ranks.size() : 0;
  return ranks;
}

// Counting walks over all runs, so it is done only if the ranks that were counted and those of runs
// that ended since may be too many, and once in many ends.
// Forgets the runs seen longest ago, down to half of the limit, so that this is rare. A run with a
// connected rank may still receive reports, so it is kept.
void RunTable::ForgetRanksOver() {
  if (ranks_over_at_most_ <= kMostRanksOver && ++ends_ % kCountEach != 0) return;
  size_t ranks = ranks_over();
  ranks_over_at_most_ = ranks;
  if (ranks <= kMostRanksOver) return;
  std::vector<Run*> over;
  for (auto& [name, run] : runs_) {
    if (run.ended && !run.ranks.empty() && !AnyConnected(run)) over.push_back(&run);
  }
  std::sort(over.begin(), over.end(), [](const Run* a, const Run* b) {
    return a->info.last_seen_unix_ns() < b->info.last_seen_unix_ns();
  });
  for (Run* run : over) {
    if (ranks <= kMostRanksOver / 2) return;
    ranks -= run->ranks.size();
    CountRanks(*run, &run->info);
    run->ranks.clear();
    ranks_over_at_most_ = ranks;
  }
}

uint32_t RunTable::Seen(const Run& run, int role) {
  const auto begin = run.ranks.lower_bound({role, 0});
  const auto end = run.ranks.upper_bound({role, std::numeric_limits<uint32_t>::max()});
  return static_cast<uint32_t>(std::distance(begin, end));
}

bool RunTable::AllSeen(const Run& run, int role) {
  return Seen(run, role) >= run.roles.at(role).world;
}

// Returns the first ranks of the world that have not come: "1-3, 5".
std::string RunTable::Absent(const Run& run, int role) {
  constexpr int kMost = 8;
  std::string text;
  uint32_t next = 0;
  int parts = 0;
  const auto add = [&](uint32_t end) {  // adds next .. end - 1
    if (next >= end || ++parts > kMost) return;
    absl::StrAppend(&text, text.empty() ? "" : ", ", next);
    if (end - next > 1) absl::StrAppend(&text, "-", end - 1);
  };
  const auto last = run.ranks.upper_bound({role, std::numeric_limits<uint32_t>::max()});
  for (auto at = run.ranks.lower_bound({role, 0}); at != last && parts <= kMost; ++at) {
    add(at->first.second);
    next = at->first.second + 1;
  }
  add(run.roles.at(role).world);
  return parts > kMost ? text + ", ..." : text;
}

std::vector<std::string> RunTable::TakeAwaited(Time now, std::chrono::nanoseconds longer_than) {
  std::vector<std::string> reported;
  for (auto& [name, run] : runs_) {
    if (run.ended) continue;
    for (auto& [id, role] : run.roles) {
      if (role.absent_gone || role.absent_reported || now - role.since < longer_than) continue;
      if (AllSeen(run, id)) continue;
      role.absent_reported = true;
      const std::chrono::duration<double> grace = grace_;
      reported.push_back(
          absl::StrFormat("run %s: waits for %s %s of its world of %d, which have not connected; "
                          "steps close without them %.3g s after the first one connected (--grace)",
                          Printable(name), role.world - Seen(run, id) == 1 ? "rank" : "ranks",
                          Absent(run, id), role.world, grace.count()));
    }
  }
  return reported;
}

// Returns the step that all awaited ranks have delivered.
int64_t RunTable::Slowest(const Run& run, int role) {
  if (!run.roles.at(role).absent_gone && !AllSeen(run, role)) return kNever;
  int64_t slowest = std::numeric_limits<int64_t>::max();
  const auto end = run.ranks.upper_bound({role, std::numeric_limits<uint32_t>::max()});
  for (auto at = run.ranks.lower_bound({role, 0}); at != end; ++at) {
    if (!at->second.over()) slowest = std::min(slowest, at->second.through);
  }
  return slowest;
}

// Returns true if the rank blocks others, is connected, and delivers nothing. A rank that is far
// ahead of another may not be read at all (pacer.h).
bool RunTable::Stalled(const Role& role, RankState& rank, int64_t slowest, Time now) const {
  if (rank.through >= role.furthest) {
    rank.overtaken = Time::max();
    return false;
  }
  rank.overtaken = std::min(rank.overtaken, now);
  if (slowest == kNever ? rank.through != kNever : rank.through >= slowest + window_ / 2)
    return false;
  const auto grace = std::max<std::chrono::nanoseconds>(grace_, kSilent);
  const bool silent = now - rank.heard >= grace;
  const bool stuck = rank.backlog && now - rank.flowed >= grace;
  return (silent || stuck) && now - std::max(rank.overtaken, role.changed) >= grace;
}

// Returns the reason why the rank counts as gone, or CAUSE_UNSPECIFIED if it does not.
v1::RanksGone::Cause RunTable::CauseOf(const Role& role, RankState& rank, int64_t slowest,
                                       Time now) const {
  if (rank.over()) return v1::RanksGone::CAUSE_UNSPECIFIED;
  if (rank.connected) {
    return Stalled(role, rank, slowest, now) ? v1::RanksGone::CAUSE_SILENT
                                             : v1::RanksGone::CAUSE_UNSPECIFIED;
  }
  if (rank.deadline > now) return v1::RanksGone::CAUSE_UNSPECIFIED;
  return rank.server_left ? v1::RanksGone::CAUSE_SERVER_AWAY : v1::RanksGone::CAUSE_STREAM_BROKEN;
}

std::vector<v1::RanksGone> RunTable::TakeGone(Time now, const Skip& skip) {
  std::vector<v1::RanksGone> list;
  for (auto& [name, run] : runs_) {
    if (run.ended || (skip && skip(name))) continue;
    std::map<int, v1::RanksGone> gone;  // by cause
    std::map<int, int64_t> slowest;     // by role
    for (const auto& [id, role] : run.roles) slowest[id] = Slowest(run, id);
    for (auto& [key, rank] : run.ranks) {
      Role& role = run.roles[key.first];
      const auto cause = CauseOf(role, rank, slowest[key.first], now);
      if (cause == v1::RanksGone::CAUSE_UNSPECIFIED) continue;
      rank.gone = true;
      role.changed = now;
      v1::RanksGone& of = gone[cause];
      if (rank.unreachable || cause != v1::RanksGone::CAUSE_STREAM_BROKEN)
        of.add_unreachable(static_cast<uint32_t>(of.sources_size()));
      *of.add_sources() = rank.source;
    }
    for (auto& [id, role] : run.roles) {
      if (role.absent_gone || now - role.since < grace_ || AllSeen(run, id)) continue;
      role.absent_gone = true;
      role.changed = now;
      v1::Source& group = *gone[v1::RanksGone::CAUSE_NEVER_CAME].add_sources();
      group.set_run(name);
      group.set_attempt(run.attempt);
      group.set_role(static_cast<v1::Role>(id));
      group.set_world_size(role.world);
    }
    for (auto& [cause, ranks] : gone) {
      ranks.set_cause(static_cast<v1::RanksGone::Cause>(cause));
      list.push_back(std::move(ranks));
    }
  }
  return list;
}

bool RunTable::MayClose(const std::string& name, const rules::Lag& lag,
                        v1::StepsClosed* closed) const {
  const auto run = runs_.find(name);
  if (run == runs_.end() || lag.unseen || lag.attempt != run->second.attempt) return false;
  int64_t through = lag.through;
  std::vector<const RankState*> after;
  for (const uint32_t number : lag.ranks) {
    const auto rank = run->second.ranks.find({lag.role, number});
    if (rank == run->second.ranks.end() || rank->second.over()) continue;
    const RankState& state = rank->second;
    const bool slow = state.connected && !state.backlog && state.slow_since != Time::max() &&
                      state.heard - state.slow_since >= kSlowFor;
    if (!slow) return false;
    through = std::min(through, state.clear_at - window_);
    after.push_back(&state);
  }
  if (through < lag.oldest) return false;
  closed->set_run(name);
  closed->set_attempt(lag.attempt);
  closed->set_role(lag.role);
  closed->set_through(through);
  for (const RankState* rank : after) {
    if (rank->through < through) closed->add_ranks(rank->source.rank());
  }
  return true;
}

bool RunTable::Ended(const std::string& run) const {
  const auto found = runs_.find(run);
  return found == runs_.end() || found->second.ended;
}

int64_t RunTable::LastSeen(const std::string& run) const {
  const auto found = runs_.find(run);
  return found == runs_.end() ? 0 : found->second.info.last_seen_unix_ns();
}

RunKnown RunTable::Known(const std::string& run) const {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  RunKnown known{found->second.info.newest_step(), {}};
  for (const auto& [id, role] : found->second.roles) known.worlds[id] = role.world;
  return known;
}

std::vector<KnownRank> RunTable::Ranks() const {
  std::vector<KnownRank> list;
  for (const auto& [name, run] : runs_) {
    if (run.ended) continue;
    for (const auto& [key, rank] : run.ranks)
      list.push_back({rank.stream_id, rank.source, rank.through, rank.over(), rank.connected,
                      run.roles.at(key.first).absent_gone});
  }
  return list;
}

bool RunTable::AllRanksOver(const Run& run) const {
  return std::all_of(run.ranks.begin(), run.ranks.end(),
                     [](const auto& rank) { return rank.second.over(); }) &&
         std::all_of(run.roles.begin(), run.roles.end(), [&](const auto& role) {
           return role.second.absent_gone || AllSeen(run, role.first);
         });
}

std::vector<std::string> RunTable::TakeEnded(const Skip& skip, std::vector<std::string>* greeted) {
  std::vector<std::string> ended;
  for (auto& [name, run] : runs_) {
    if (run.ended || (skip && skip(name)) || run.ranks.empty() || !AllRanksOver(run)) continue;
    run.ended = true;
    (run.judged && greeted != nullptr ? *greeted : ended).push_back(name);
  }
  return ended;
}

}  // namespace plumbline::server
