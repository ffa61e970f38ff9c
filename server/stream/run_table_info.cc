// What a run's information states: closed steps, late and lost items, number of ranks; and its
// persistence.
#include <algorithm>
#include <utility>

#include "rules/engine/refused.h"
#include "server/stream/run_table.h"

namespace plumbline::server {

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

void RunTable::AddLate(const std::string& run, const std::string& cause, uint64_t items) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  v1::RunInfo& info = found->second.info;
  info.set_late(info.late() + items);
  (*info.mutable_late_by_cause())[cause] += items;
}

void RunTable::AddLost(const std::string& run, const std::string& cause, uint64_t items) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  v1::RunInfo& info = found->second.info;
  info.set_lost(info.lost() + items);
  (*info.mutable_lost_by_cause())[cause] += items;
}

RunTable::Counted RunTable::TakeCounted(const std::string& run) {
  Counted counted;
  const auto found = runs_.find(run);
  if (found == runs_.end()) return counted;
  v1::RunInfo& info = found->second.info;
  counted.late = {info.late_by_cause().begin(), info.late_by_cause().end()};
  info.clear_late();
  info.clear_late_by_cause();
  for (const char* cause : {rules::kRefusedLoss, rules::kSupersededLoss}) {
    const auto lost = info.mutable_lost_by_cause()->find(cause);
    if (lost == info.lost_by_cause().end()) continue;
    counted.lost[cause] = lost->second;
    info.set_lost(info.lost() - lost->second);
    info.mutable_lost_by_cause()->erase(lost);
  }
  return counted;
}

void RunTable::KeepCounted(const std::string& run, const Counted& before) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  const v1::RunInfo& info = found->second.info;
  const auto missing = [](const auto& counts, const std::string& cause, uint64_t items) {
    const auto known = counts.find(cause);
    const uint64_t now = known == counts.end() ? 0 : known->second;
    return items - std::min(items, now);
  };
  for (const auto& [cause, items] : before.late) {
    if (const uint64_t n = missing(info.late_by_cause(), cause, items); n > 0)
      AddLate(run, cause, n);
  }
  for (const auto& [cause, items] : before.lost) {
    if (const uint64_t n = missing(info.lost_by_cause(), cause, items); n > 0)
      AddLost(run, cause, n);
  }
}

std::vector<std::string> RunTable::RunsOf(const v1::Batch& batch) {
  std::vector<std::string> runs;
  for (const v1::Source& source : batch.sources()) {
    if (std::find(runs.begin(), runs.end(), source.run()) == runs.end())
      runs.push_back(source.run());
  }
  return runs;
}

void RunTable::RankState::Persist(Archive& archive) {
  archive(source, stream_id, finished, gone, through);
}

void RunTable::Run::Persist(Archive& archive) { archive(attempt, ended, ranks, roles, info); }

void RunTable::Persist(Archive& archive) {
  // 3: deaths and hangs; 4: waiting ranks; 5: forgotten runs, and stopped steps
  const uint32_t version = archive.Version(5, 2);
  archive(runs_);
  if (version < 3) return;
  for (auto& [name, run] : runs_)
    archive(run.bad_ends, run.died, run.reborn, run.unstuck, run.stuck);
  if (version < 4) return;
  for (auto& [name, run] : runs_) archive(run.waits);
  if (version < 5) return;
  for (auto& [name, run] : runs_)
    archive(run.forgotten, run.judged, run.stopped_since, run.stopped_step);
}

std::vector<v1::RunInfo> RunTable::List() const {
  std::vector<v1::RunInfo> list;
  for (const auto& [name, run] : runs_) {
    v1::RunInfo info = run.info;
    info.set_attempt(run.attempt);
    uint32_t world = 0, awaited = 0;
    for (const auto& [id, role] : run.roles) {
      world += role.world;
      if (!run.ended && !role.absent_gone)
        awaited += role.world - std::min(role.world, Seen(run, id));
    }
    if (awaited > 0) (*info.mutable_liveness())[kAwaited] = awaited;
    info.set_world_size(world);
    if (!run.ranks.empty()) CountRanks(run, &info);  // otherwise the earlier counts stay
    list.push_back(std::move(info));
  }
  return list;
}

void RunTable::CountRanks(const Run& run, v1::RunInfo* info) {
  uint32_t connected = 0, finished = 0;
  for (const auto& [key, rank] : run.ranks) {
    connected += rank.connected ? 1 : 0;
    finished += rank.finished ? 1 : 0;
  }
  info->set_ranks_seen(static_cast<uint32_t>(run.ranks.size()));
  info->set_ranks_connected(connected);
  info->set_ranks_finished(finished);
}

}  // namespace plumbline::server
