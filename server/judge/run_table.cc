#include "server/judge/run_table.h"

#include <algorithm>

#include "rules/engine/series.h"
#include "rules/lib/archive_proto.h"

namespace plumbline::server {

RunTable::Run& RunTable::RunOf(const v1::Source& source, Time now, int64_t unix_ns) {
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
  run.last_activity = now;
  return run;
}

// Enters the rank, unless it belongs to an attempt that a later one has superseded.
void RunTable::Touch(Run& run, uint64_t stream_id, const v1::Source& source) {
  if (source.attempt() < run.attempt) return;
  const Rank key{source.role(), source.rank()};
  const auto known = run.ranks.find(key);
  const bool same_process = known != run.ranks.end() && known->second.stream_id == stream_id;
  // A new process after the run was over begins it anew: its old ranks say nothing any more.
  if (source.attempt() > run.attempt || (run.ended && !same_process)) {
    run.attempt = source.attempt();
    run.ranks.clear();
    run.world.clear();
  }
  uint32_t& world = run.world[source.role()];
  world = std::max(world, source.world_size());
  RankState& rank = run.ranks[key];
  if (rank.stream_id != stream_id) {  // this process takes the rank over
    rank = RankState();
    rank.stream_id = stream_id;
    rank.source = source;
    rank.connected = true;
  }
  run.ended = false;
}

// nullptr unless `stream_id` speaks for the rank in the newest attempt.
RunTable::RankState* RunTable::Find(Run& run, uint64_t stream_id, const v1::Source& source) {
  if (source.attempt() != run.attempt) return nullptr;
  const auto rank = run.ranks.find({source.role(), source.rank()});
  return rank == run.ranks.end() || rank->second.stream_id != stream_id ? nullptr : &rank->second;
}

void RunTable::Connected(uint64_t stream_id, const v1::Source& source, Time now, int64_t unix_ns) {
  Run& run = RunOf(source, now, unix_ns);
  Touch(run, stream_id, source);
  if (RankState* rank = Find(run, stream_id, source)) {
    rank->connected = true;
    rank->gone = false;
  }
}

void RunTable::Account(uint64_t stream_id, const v1::Batch& batch, Time now, int64_t unix_ns) {
  std::vector<Run*> by_source;
  by_source.reserve(static_cast<size_t>(batch.sources_size()));
  for (const v1::Source& source : batch.sources()) {
    by_source.push_back(&RunOf(source, now, unix_ns));
    Touch(*by_source.back(), stream_id, source);
  }
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
  for (const v1::Progress& progress : batch.progress()) {
    Run& run = *by_source[progress.source()];
    run.info.set_newest_step(std::max(run.info.newest_step(), progress.newest_step()));
    const v1::Source& source = batch.sources(static_cast<int>(progress.source()));
    if (RankState* rank = Find(run, stream_id, source)) rank->finished |= progress.finished();
  }
}

void RunTable::Disconnected(uint64_t stream_id, const v1::Source& source, Time now) {
  const auto run = runs_.find(source.run());
  if (run == runs_.end()) return;
  if (RankState* rank = Find(run->second, stream_id, source)) {
    rank->connected = false;
    rank->deadline = now + grace_;
  }
}

void RunTable::DisconnectAll(Time now) {
  for (auto& [name, run] : runs_) {
    run.last_activity = now;
    for (auto& [key, rank] : run.ranks) {
      rank.connected = false;
      rank.deadline = now + grace_;
    }
  }
}

void RunTable::SetGone(const v1::Source& source) {
  const auto run = runs_.find(source.run());
  if (run == runs_.end() || source.attempt() != run->second.attempt) return;
  const auto rank = run->second.ranks.find({source.role(), source.rank()});
  if (rank == run->second.ranks.end()) return;
  rank->second.connected = false;
  rank->second.gone = true;
}

void RunTable::SetEnded(const std::string& run) {
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.ended = true;
}

std::vector<v1::Source> RunTable::TakeGone(Time now) {
  std::vector<v1::Source> gone;
  for (auto& [name, run] : runs_) {
    if (run.ended) continue;
    for (auto& [key, rank] : run.ranks) {
      if (!rank.waiting() || rank.deadline > now) continue;
      rank.gone = true;
      gone.push_back(rank.source);
    }
  }
  return gone;
}

bool RunTable::Ended(const std::string& run) const {
  const auto found = runs_.find(run);
  return found == runs_.end() || found->second.ended;
}

RunKnown RunTable::Known(const std::string& run) const {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  return {found->second.info.newest_step(), found->second.world};
}

bool RunTable::AllRanksOver(const Run& run) const {
  return std::all_of(run.ranks.begin(), run.ranks.end(),
                     [](const auto& rank) { return rank.second.over(); });
}

bool RunTable::AllRanksSeen(const Run& run) const {
  for (const auto& [role, world] : run.world) {
    const auto begin = run.ranks.lower_bound({role, 0});
    const auto end = run.ranks.lower_bound({role + 1, 0});
    if (static_cast<uint32_t>(std::distance(begin, end)) < world) return false;
  }
  return true;
}

std::vector<std::string> RunTable::TakeEnded(Time now) {
  std::vector<std::string> ended;
  for (auto& [name, run] : runs_) {
    if (run.ended || run.ranks.empty() || !AllRanksOver(run)) continue;
    if (!AllRanksSeen(run) && run.last_activity + grace_ > now) continue;
    run.ended = true;
    ended.push_back(name);
  }
  return ended;
}

void RunTable::SetClosedStep(const std::string& run, int64_t step) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  v1::RunInfo& info = found->second.info;
  info.set_closed_step(std::max(info.closed_step(), step));
}

void RunTable::SetAllClosed(const std::string& run) {
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.info.set_closed_step(found->second.info.newest_step());
}

std::vector<std::string> RunTable::RunsOf(const v1::Batch& batch) const {
  std::vector<std::string> runs;
  for (const v1::Source& source : batch.sources()) {
    if (std::find(runs.begin(), runs.end(), source.run()) == runs.end())
      runs.push_back(source.run());
  }
  return runs;
}

void RunTable::RankState::Persist(Archive& archive) { archive(source, stream_id, finished, gone); }

void RunTable::Run::Persist(Archive& archive) { archive(attempt, ended, ranks, world, info); }

void RunTable::Persist(Archive& archive) {
  archive.Version(1);
  archive(runs_);
}

std::vector<v1::RunInfo> RunTable::List() const {
  std::vector<v1::RunInfo> list;
  for (const auto& [name, run] : runs_) {
    v1::RunInfo info = run.info;
    info.set_attempt(run.attempt);
    uint32_t world = 0;
    for (const auto& [role, size] : run.world) world += size;
    info.set_world_size(world);
    info.set_ranks_seen(static_cast<uint32_t>(run.ranks.size()));
    uint32_t connected = 0, finished = 0;
    for (const auto& [key, rank] : run.ranks) {
      connected += rank.connected ? 1 : 0;
      finished += rank.finished ? 1 : 0;
    }
    info.set_ranks_connected(connected);
    info.set_ranks_finished(finished);
    list.push_back(std::move(info));
  }
  return list;
}

}  // namespace plumbline::server
