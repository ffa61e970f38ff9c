#include "server/capsules/run_processes.h"

#include <algorithm>

namespace plumbline::server {
namespace {

constexpr std::chrono::seconds kMostGrace{60};
constexpr std::chrono::seconds kUnnamed{10};  // for ranks that are only known from the world size

}  // namespace

bool SameProcess(const v1::Source& a, const v1::Source& b) {
  return a.rank() == b.rank() && a.role() == b.role() && a.attempt() == b.attempt() &&
         a.run() == b.run();
}

RunProcesses::RunProcesses(std::chrono::nanoseconds grace, Time start)
    : start_(start), grace_(std::min<std::chrono::nanoseconds>(grace, kMostGrace)) {}

bool RunProcesses::Role::Follows(uint32_t rank) const {
  const auto found = ranks.find(rank);
  return found != ranks.end() && found->second.following > 0;
}

size_t RunProcesses::Role::following() const {
  return static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(),
                                           [](const auto& r) { return r.second.following > 0; }));
}

bool RunProcesses::Joined(uint64_t stream_id, Stream stream, Time now) {
  Stream& known = streams_[stream_id];
  if (known.connection > stream.connection) return false;
  // Count the new processes first, so that a run in progress does not count as new.
  for (const v1::Source& source : stream.sources) Count(source, stream.follows, now);
  for (const v1::Source& source : known.sources) Uncount(source, known.follows);
  known = std::move(stream);
  return true;
}

bool RunProcesses::Left(uint64_t stream_id, uint64_t connection) {
  const auto stream = streams_.find(stream_id);
  if (stream == streams_.end() || stream->second.connection != connection) return false;
  for (const v1::Source& source : stream->second.sources) Uncount(source, stream->second.follows);
  streams_.erase(stream);
  return true;
}

void RunProcesses::Count(const v1::Source& source, bool follows, Time now) {
  const auto [attempt, fresh] = runs_[source.run()].try_emplace(source.attempt());
  if (fresh) attempt->second.since = now;
  Role& role = attempt->second.roles[source.role()];
  role.world = std::max(role.world, source.world_size());
  Streams& streams = role.ranks[source.rank()];
  ++streams.all;
  streams.following += follows ? 1 : 0;
}

void RunProcesses::Uncount(const v1::Source& source, bool follows) {
  const auto run = runs_.find(source.run());
  const auto attempt = run->second.find(source.attempt());
  const auto role = attempt->second.roles.find(source.role());
  const auto rank = role->second.ranks.find(source.rank());
  rank->second.following -= follows ? 1 : 0;
  if (--rank->second.all > 0) return;
  role->second.ranks.erase(rank);
  if (!role->second.ranks.empty()) return;
  attempt->second.roles.erase(role);
  if (!attempt->second.roles.empty()) return;
  run->second.erase(attempt);
  if (run->second.empty()) runs_.erase(run);
}

const RunProcesses::Stream* RunProcesses::Of(uint64_t stream_id) const {
  const auto stream = streams_.find(stream_id);
  return stream == streams_.end() ? nullptr : &stream->second;
}

std::vector<uint64_t> RunProcesses::StreamsOf(const std::string& run) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, stream] : streams_) {
    if (std::any_of(stream.sources.begin(), stream.sources.end(),
                    [&](const v1::Source& s) { return s.run() == run; })) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<RunProcesses::Process> RunProcesses::ProcessesOf(const std::string& run) const {
  std::vector<Process> found;
  const auto attempts = runs_.find(run);
  if (attempts == runs_.end()) return found;
  const uint32_t newest = attempts->second.rbegin()->first;
  for (const auto& [id, stream] : streams_) {
    for (const v1::Source& source : stream.sources) {
      if (source.run() == run && source.attempt() == newest) found.push_back({id, source});
    }
  }
  return found;
}

bool RunProcesses::MoreMayCome(const v1::FindingSite& site, const std::map<int, uint32_t>& worlds,
                               Time now) const {
  const auto attempts = runs_.find(site.run());
  if (attempts == runs_.end()) return now < start_ + grace_;
  const Attempt& newest = attempts->second.rbegin()->second;
  const Time since = std::max(start_, newest.since);
  if (now >= since + grace_) return false;
  const bool all_named = std::all_of(site.ranks().begin(), site.ranks().end(), [&](uint32_t rank) {
    return std::any_of(newest.roles.begin(), newest.roles.end(),
                       [rank](const auto& role) { return role.second.Follows(rank); });
  });
  if (!all_named) return true;
  if (now >= since + kUnnamed) return false;
  std::map<int, uint32_t> promised = worlds;
  for (const auto& [id, role] : newest.roles) promised[id] = std::max(promised[id], role.world);
  return std::any_of(promised.begin(), promised.end(), [&](const auto& world) {
    const auto role = newest.roles.find(world.first);
    return world.second > (role == newest.roles.end() ? 0 : role->second.following());
  });
}

}  // namespace plumbline::server
