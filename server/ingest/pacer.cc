#include "server/ingest/pacer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

// Everybody may be read.
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What a trainer counts, and far enough from the ends to count with.
bool IsStep(int64_t step) { return step >= 0 && step < kNoLimit / 2; }

template <typename Ranks>
auto& Find(Ranks* ranks, uint32_t rank) {
  const auto found =
      std::find_if(ranks->begin(), ranks->end(), [&](const auto& r) { return r.rank == rank; });
  return found != ranks->end() ? *found : ranks->emplace_back();
}

}  // namespace

// kNoLimit when every rank has finished, kNever while one has not said how far it is.
int64_t Pacer::Position(const Part& part) {
  int64_t slowest = kNoLimit;
  for (const Rank& r : part.ranks) {
    if (!r.finished) slowest = std::min(slowest, r.through);
  }
  return slowest;
}

int64_t Pacer::CallPosition(const Stream& stream, const Part& part) const {
  int64_t slowest = kNoLimit;
  for (const uint64_t id : calls_.at(stream.call)) {
    for (const Part& other : streams_.at(id).parts) {
      if (other.group == part.group) slowest = std::min(slowest, Position(other));
    }
  }
  return slowest;
}

Pacer::Part& Pacer::PartOf(Stream* stream, const v1::Source& source) {
  for (Part& part : stream->parts) {
    if (part.attempt == source.attempt() && part.role == source.role() &&
        part.run == source.run()) {
      return part;
    }
  }
  Part& part = stream->parts.emplace_back();
  part.run = source.run();
  part.attempt = source.attempt();
  part.role = source.role();
  const auto [group, fresh] =
      groups_.try_emplace(absl::StrCat(part.attempt, "/", part.role, "/", part.run));
  part.group = &group->second;
  if (fresh) part.group->since = options_.now();
  ++part.group->parts;
  return part;
}

// The rank of the stream, which speaks for it from now on.
Pacer::Rank& Pacer::RankOf(uint64_t id, Stream* stream, const v1::Source& source) {
  Part& part = PartOf(stream, source);
  part.group->world = std::max(part.group->world, source.world_size());
  Rank& rank = Find(&part.ranks, source.rank());
  rank.rank = source.rank();
  const auto [speaker, fresh] = part.group->speakers.try_emplace(source.rank(), id);
  if (!fresh && speaker->second != id)
    TakeOver(id, std::exchange(speaker->second, id), part.group, source.rank());
  return rank;
}

// A process that broke off holds nobody for a rank that another one speaks for.
void Pacer::TakeOver(uint64_t id, uint64_t former, Group* group, uint32_t number) {
  const auto found = streams_.find(former);
  if (former == id || found == streams_.end() || found->second.call != nullptr) return;
  for (Part& part : found->second.parts) {
    if (part.group != group) continue;
    Find(&part.ranks, number).finished = true;
    Place(former, found->second, &part);
  }
}

void Pacer::Advance(Group* group, Rank* rank, int64_t through) {
  if (rank->through == kNever && (group->base == kNever || through < group->base))
    group->base = through;
  rank->through = std::max(rank->through, through);
}

// Whether the stream holds others, and where.
void Pacer::Place(uint64_t id, const Stream& stream, Part* part) {
  Group& group = *part->group;
  // Who has not said where it is stands where the others began.
  const int64_t said = Position(*part);
  const int64_t position = said == kNever ? group.base : said;
  const bool comes = stream.backlog || stream.call == nullptr;
  const int64_t at = comes && position != kNoLimit ? position : kNever;
  if (at == part->held_at) return;
  if (part->held_at != kNever) group.holders.erase({part->held_at, id});
  if (at != kNever) group.holders.emplace(at, id);
  part->held_at = at;
}

// It said something.
void Pacer::Settle(uint64_t id, Stream* stream, std::vector<Resume>* free) {
  stream->heard = options_.now();
  for (Part& part : stream->parts) {
    Place(id, *stream, &part);
    Release(part.group, free);
  }
}

int64_t Pacer::Limit(Group* group) {
  const Clock::time_point now = options_.now();
  int64_t limit = kNoLimit;
  const bool more_may_come = !group->alone && group->speakers.size() < group->world &&
                             now - group->since <= options_.patience;
  if (more_may_come && group->base != kNever) limit = group->base + options_.window / 2;
  while (!group->holders.empty()) {
    const auto [position, id] = *group->holders.begin();
    Stream& stream = streams_.at(id);
    if (now - stream.heard <= options_.patience)
      return std::min(limit, position + options_.window / 2);
    group->holders.erase(group->holders.begin());
    for (Part& part : stream.parts) {
      if (part.group == group) part.held_at = kNever;
    }
  }
  return limit;
}

void Pacer::Release(Group* group, std::vector<Resume>* free) {
  if (group->stopped.empty()) return;
  const int64_t limit = Limit(group);
  while (!group->stopped.empty() && group->stopped.begin()->first <= limit) {
    free->push_back(std::move(group->stopped.begin()->second.resume));
    group->stopped.erase(group->stopped.begin());
    --stopped_;
  }
}

void Pacer::ReleaseStream(uint64_t id, const Stream& stream, std::vector<Resume>* free) {
  for (const Part& part : stream.parts) {
    stopped_ -= std::erase_if(part.group->stopped, [&](auto& stopped) {
      if (stopped.second.stream != id) return false;
      free->push_back(std::move(stopped.second.resume));
      return true;
    });
  }
}

void Pacer::TakeFromCall(uint64_t id, Stream* stream) {
  const auto call = calls_.find(stream->call);
  stream->call = nullptr;
  if (call == calls_.end()) return;
  std::erase(call->second, id);
  if (call->second.empty()) calls_.erase(call);
}

void Pacer::Forget(uint64_t id, std::vector<Resume>* free) {
  const auto found = streams_.find(id);
  for (Part& part : found->second.parts) {
    if (part.held_at != kNever) part.group->holders.erase({part.held_at, id});
    Release(part.group, free);
  }
  const std::vector<Part> parts = std::move(found->second.parts);
  streams_.erase(found);
  for (const Part& part : parts) {
    if (--part.group->parts != 0) continue;
    groups_.erase(absl::StrCat(part.attempt, "/", part.role, "/", part.run));
  }
}

void Pacer::Join(uint64_t id, const void* call, const v1::Hello& hello, std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = streams_[id];
  ReleaseStream(id, stream, free);
  TakeFromCall(id, &stream);
  stream.call = call;
  calls_[call].push_back(id);
  const v1::Heartbeat& state = hello.state();
  stream.backlog = state.queued_batches() != 0;
  for (const v1::Source& source : hello.sources()) {
    Rank& rank = RankOf(id, &stream, source);
    const bool known = state.any_step() && IsStep(state.oldest_unsent_step()) &&
                       state.oldest_unsent_step() <= state.newest_step();
    if (stream.backlog && known) {
      Advance(PartOf(&stream, source).group, &rank, state.oldest_unsent_step() - 1);
    }
  }
  Settle(id, &stream, free);
}

void Pacer::Leave(uint64_t id, std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  ReleaseStream(id, stream, free);
  TakeFromCall(id, &stream);
  Settle(id, &stream, free);
  const bool finished = std::all_of(stream.parts.begin(), stream.parts.end(),
                                    [](const Part& p) { return Position(p) == kNoLimit; });
  if (finished) Forget(id, free);
}

void Pacer::Restore(uint64_t id, const v1::Source& source, int64_t through, bool over, bool alone,
                    std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = groups_.find(
      absl::StrCat(source.attempt(), "/", static_cast<int>(source.role()), "/", source.run()));
  const bool spoken = known != groups_.end() && known->second.speakers.contains(source.rank());
  if (spoken && known->second.speakers.at(source.rank()) != id) return;
  Stream& stream = streams_[id];
  Rank& rank = RankOf(id, &stream, source);
  rank.finished |= over && stream.call == nullptr;
  PartOf(&stream, source).group->alone |= alone;
  if (IsStep(through)) Advance(PartOf(&stream, source).group, &rank, through);
  Settle(id, &stream, free);
}

// False: the call is not ahead in every one of its groups.
bool Pacer::Stop(uint64_t id, const Stream& stream, Resume resume) {
  Group* ahead = nullptr;
  int64_t at = 0;
  for (const Part& part : stream.parts) {
    const int64_t position = CallPosition(stream, part);
    if (position == kNever || position == kNoLimit || position <= Limit(part.group)) return false;
    ahead = part.group;
    at = position;
  }
  if (ahead == nullptr) return false;
  ahead->stopped.emplace(at, Stopped{id, std::move(resume)});
  ++stopped_;
  return true;
}

bool Pacer::Hear(uint64_t id, const v1::Batch& batch, uint64_t unsent, Resume resume,
                 std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.call == nullptr) return true;
  Stream& stream = found->second;
  stream.backlog = unsent != 0;
  for (const v1::Progress& progress : batch.progress()) {
    const v1::Source& source = batch.sources(static_cast<int>(progress.source()));
    Rank& rank = RankOf(id, &stream, source);
    rank.finished |= progress.finished();
    if (!progress.any_step() || !IsStep(progress.complete_through())) continue;
    Advance(PartOf(&stream, source).group, &rank, progress.complete_through());
  }
  Settle(id, &stream, free);
  return resume == nullptr || !Stop(id, stream, std::move(resume));
}

void Pacer::Hear(uint64_t id, const v1::Heartbeat& heartbeat, std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  found->second.backlog =
      heartbeat.any_step() && heartbeat.oldest_unsent_step() <= heartbeat.newest_step();
  Settle(id, &found->second, free);
}

void Pacer::Tick(std::vector<Resume>* free) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point now = options_.now();
  std::vector<uint64_t> over;
  for (const auto& [id, stream] : streams_) {
    if (stream.call == nullptr && now - stream.heard > options_.patience) over.push_back(id);
  }
  for (const uint64_t id : over) Forget(id, free);
  for (auto& [key, group] : groups_) Release(&group, free);
}

size_t Pacer::streams() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return streams_.size();
}

size_t Pacer::stopped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopped_;
}

}  // namespace plumbline::server
