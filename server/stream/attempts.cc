#include "server/stream/attempts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/stream/rank_key.h"

namespace plumbline::server {
namespace {

// Returns true for trainers. The processes of another role start and end one by one, and are not
// joined by steps.
bool Counts(const v1::Source& source) { return source.role() == v1::ROLE_TRAINER; }

}  // namespace

uint32_t Attempts::Ahead(const v1::Hello& hello) const {
  const auto own = streams_.find(hello.stream_id());
  if (own != streams_.end() && own->second.ahead) return *own->second.ahead;
  // Find the earliest attempt that the hello gives for each rank.
  std::map<std::string, const v1::Source*> stated;
  for (const v1::Source& source : hello.sources()) {
    if (!Counts(source)) continue;
    std::string key = RankKey(source);
    if (stated.size() >= kMostRanks && !stated.contains(key)) continue;
    const v1::Source*& first = stated.try_emplace(std::move(key), &source).first->second;
    if (source.attempt() < first->attempt()) first = &source;
  }
  uint32_t ahead = 0;
  for (const auto& [key, source] : stated) {
    uint32_t given = source->attempt();
    if (own == streams_.end()) {
      given = GivenTo(*source);
    } else if (const auto known = own->second.ranks.find(key); known != own->second.ranks.end()) {
      given = known->second;
    }
    if (given > source->attempt()) ahead = std::max(ahead, given - source->attempt());
  }
  return ahead;
}

// Returns the attempt to give to a source whose stream is not known.
uint32_t Attempts::GivenTo(const v1::Source& source) const {
  const uint32_t stated = source.attempt();
  const auto found = runs_.find(source.run());
  if (found == runs_.end() || stated > found->second.latest) return stated;
  const Run& run = found->second;
  // Another process has this rank in the latest attempt, or the latest attempt was a job of another
  // size.
  const auto rank = ranks_.find(RankKey(source));
  const bool taken = rank != ranks_.end() && rank->second.attempt >= run.latest;
  const bool other_size =
      source.world_size() != 0 && run.world != 0 && source.world_size() != run.world;
  if (taken || other_size)
    return run.there.empty() && run.latest < UINT32_MAX ? run.latest + 1 : stated;
  // Another process of the same launch got the latest attempt.
  const bool alone = run.there.empty() || run.there.begin()->first == run.latest;
  return run.raised && alone ? run.latest : stated;
}

void Attempts::Count(const Stream& stream, int change) {
  for (const auto& [name, attempt] : stream.runs) {
    const auto run = runs_.find(name);
    if (run == runs_.end()) continue;
    uint32_t& there = run->second.there[attempt];
    there = static_cast<uint32_t>(static_cast<int>(there) + change);
    if (there == 0) run->second.there.erase(attempt);
  }
}

void Attempts::Joined(uint64_t stream_id, const std::vector<v1::Source>& sources, uint32_t ahead) {
  Stream& stream = streams_[stream_id];
  if (stream.connected) Count(stream, -1);
  stream.ahead = ahead;
  stream.connected = true;
  Add(stream_id, &stream, sources, ahead > 0);
  Count(stream, 1);
}

void Attempts::Restore(uint64_t stream_id, const std::vector<v1::Source>& sources) {
  Add(stream_id, &streams_[stream_id], sources, false);
}

void Attempts::Add(uint64_t stream_id, Stream* stream, const std::vector<v1::Source>& sources,
                   bool raised) {
  for (const v1::Source& source : sources) {
    if (!Counts(source)) continue;
    std::string key = RankKey(source);
    if (stream->ranks.size() >= kMostRanks && !stream->ranks.contains(key)) continue;
    const uint32_t attempt = source.attempt();
    uint32_t& earliest = stream->ranks.try_emplace(key, attempt).first->second;
    earliest = std::min(earliest, attempt);
    // Keep the latest attempt that a stream reported for this rank, and for any rank.
    const auto [rank, first] = ranks_.try_emplace(std::move(key), Rank{stream_id, attempt});
    if (!first && attempt >= rank->second.attempt) rank->second = {stream_id, attempt};
    const auto [of_run, fresh] = stream->runs.try_emplace(source.run(), attempt);
    of_run->second = std::max(of_run->second, attempt);
    const auto [entry, first_of_run] = runs_.try_emplace(source.run());
    Run& run = entry->second;
    run.streams += fresh ? 1 : 0;
    if (!first_of_run && attempt <= run.latest) continue;
    run.latest = attempt;
    run.raised = raised;
    run.world = source.world_size();
  }
}

void Attempts::Left(uint64_t stream_id) {
  const auto found = streams_.find(stream_id);
  if (found == streams_.end() || !found->second.connected) return;
  Count(found->second, -1);
  found->second.connected = false;
}

void Attempts::Forget(uint64_t stream_id) {
  Left(stream_id);
  const auto found = streams_.find(stream_id);
  if (found == streams_.end()) return;
  for (const auto& [key, attempt] : found->second.ranks) {
    const auto rank = ranks_.find(key);
    if (rank != ranks_.end() && rank->second.stream == stream_id) ranks_.erase(rank);
  }
  for (const auto& [name, attempt] : found->second.runs) {
    const auto run = runs_.find(name);
    if (run != runs_.end() && --run->second.streams == 0) runs_.erase(run);
  }
  streams_.erase(found);
}

void Attempts::Raise(uint32_t ahead, google::protobuf::RepeatedPtrField<v1::Source>* sources) {
  for (v1::Source& source : *sources) {
    if (Counts(source) && source.attempt() <= UINT32_MAX - ahead)
      source.set_attempt(source.attempt() + ahead);
  }
}

}  // namespace plumbline::server
