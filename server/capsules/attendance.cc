#include "server/capsules/attendance.h"

#include <algorithm>

namespace plumbline::server {

bool Attendance::Joined(uint64_t stream_id, Stream stream, Time now) {
  Stream& known = streams_[stream_id];
  if (known.connection > stream.connection) return false;
  // The new ones first, so that a run that goes on does not begin again.
  for (const v1::Source& source : stream.sources) Count(source, now);
  for (const v1::Source& source : known.sources) Uncount(source);
  known = std::move(stream);
  return true;
}

bool Attendance::Left(uint64_t stream_id, uint64_t connection) {
  const auto stream = streams_.find(stream_id);
  if (stream == streams_.end() || stream->second.connection != connection) return false;
  for (const v1::Source& source : stream->second.sources) Uncount(source);
  streams_.erase(stream);
  return true;
}

void Attendance::Count(const v1::Source& source, Time now) {
  const auto [attempt, fresh] = runs_[source.run()].try_emplace(source.attempt());
  if (fresh) attempt->second.since = now;
  Role& role = attempt->second.roles[source.role()];
  role.world = std::max(role.world, source.world_size());
  ++role.ranks[source.rank()];
}

void Attendance::Uncount(const v1::Source& source) {
  const auto run = runs_.find(source.run());
  const auto attempt = run->second.find(source.attempt());
  const auto role = attempt->second.roles.find(source.role());
  const auto rank = role->second.ranks.find(source.rank());
  if (--rank->second > 0) return;
  role->second.ranks.erase(rank);
  if (!role->second.ranks.empty()) return;
  attempt->second.roles.erase(role);
  if (!attempt->second.roles.empty()) return;
  run->second.erase(attempt);
  if (run->second.empty()) runs_.erase(run);
}

const Attendance::Stream* Attendance::Of(uint64_t stream_id) const {
  const auto stream = streams_.find(stream_id);
  return stream == streams_.end() ? nullptr : &stream->second;
}

std::vector<uint64_t> Attendance::StreamsOf(const std::string& run) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, stream] : streams_) {
    if (std::any_of(stream.sources.begin(), stream.sources.end(),
                    [&](const v1::Source& s) { return s.run() == run; })) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<Attendance::Process> Attendance::ProcessesOf(const std::string& run) const {
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

bool Attendance::MoreMayCome(const v1::FindingSite& site, Time now) const {
  const auto attempts = runs_.find(site.run());
  if (attempts == runs_.end()) return now < back_by_;
  const Attempt& newest = attempts->second.rbegin()->second;
  if (now >= std::max(back_by_, newest.since + grace_)) return false;
  for (const auto& [id, role] : newest.roles) {
    if (role.ranks.size() < role.world) return true;
  }
  return std::any_of(site.ranks().begin(), site.ranks().end(), [&](uint32_t rank) {
    return std::none_of(newest.roles.begin(), newest.roles.end(),
                        [&](const auto& role) { return role.second.ranks.count(rank) != 0; });
  });
}

}  // namespace plumbline::server
