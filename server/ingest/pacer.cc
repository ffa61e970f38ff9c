#include "server/ingest/pacer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

// No stream is paused.
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Returns true for a valid step that is far enough from the limits to compute with.
bool IsStep(int64_t step) { return step >= 0 && step < kNoLimit / 2; }

std::string KeyOf(const v1::Source& source) {
  return absl::StrCat(source.attempt(), "/", static_cast<int>(source.role()), "/", source.run());
}

}  // namespace

int64_t Pacer::Part::position() const {
  return unfinished.empty() ? kNoLimit : unfinished.begin()->first;
}

int64_t Pacer::CallPosition(const Stream& stream, const Part& part) const {
  const auto& positions = calls_.at(stream.call).positions;
  const auto found = positions.find(part.group);
  return found == positions.end() ? kNoLimit : *found->second.begin();
}

Pacer::Part& Pacer::PartOf(uint64_t id, Stream* stream, const v1::Source& source,
                           std::vector<Resume>* free) {
  for (auto part = stream->parts.begin(); part != stream->parts.end(); ++part) {
    if (part->attempt != source.attempt() || part->role != source.role() ||
        part->run != source.run())
      continue;
    stream->parts.splice(stream->parts.begin(), stream->parts, part);
    return stream->parts.front();
  }
  if (stream->parts.size() >= kMostParts) Drop(id, stream, std::prev(stream->parts.end()), free);
  Part& part = stream->parts.emplace_front();
  part.run = source.run();
  part.attempt = source.attempt();
  part.role = source.role();
  const auto [group, fresh] = groups_.try_emplace(KeyOf(source));
  part.group = &group->second;
  if (fresh) {
    part.group->key = group->first;
    part.group->since = options_.now();
  }
  ++part.group->parts;
  return part;
}

// Makes the stream the owner of the rank.
Pacer::Part& Pacer::Speak(uint64_t id, Stream* stream, const v1::Source& source,
                          std::vector<Resume>* free) {
  Part& part = PartOf(id, stream, source, free);
  part.group->world = std::max(part.group->world, source.world_size());
  if (part.ranks.try_emplace(source.rank()).second) {
    part.unfinished.emplace(kNever, source.rank());
    Count(*stream, &part);
  }
  const auto [speaker, fresh] = part.group->speakers.try_emplace(source.rank(), id);
  if (!fresh && speaker->second != id)
    TakeOver(id, std::exchange(speaker->second, id), part.group, source.rank());
  return part;
}

// A disconnected process no longer holds other streams for a rank that another stream owns now.
void Pacer::TakeOver(uint64_t id, uint64_t former, Group* group, uint32_t number) {
  const auto found = streams_.find(former);
  if (former == id || found == streams_.end() || found->second.call != nullptr) return;
  for (Part& part : found->second.parts) {
    if (part.group != group) continue;
    Finish(&found->second, &part, number);
    Place(former, found->second, &part);
  }
}

void Pacer::Advance(Stream* stream, Part* part, uint32_t number, int64_t through) {
  Rank& rank = part->ranks.at(number);
  Group& group = *part->group;
  if (rank.through == kNever && (group.base == kNever || through < group.base))
    group.base = through;
  if (through <= rank.through) return;
  if (!rank.finished) {
    part->unfinished.erase({rank.through, number});
    part->unfinished.emplace(through, number);
  }
  rank.through = through;
  Count(*stream, part);
}

void Pacer::Finish(Stream* stream, Part* part, uint32_t number) {
  Rank& rank = part->ranks[number];
  if (std::exchange(rank.finished, true)) return;
  part->unfinished.erase({rank.through, number});
  Count(*stream, part);
}

// Updates the stream's position in its call, whose streams are read together.
void Pacer::Count(const Stream& stream, Part* part) {
  if (stream.call == nullptr || part->counted == part->position()) return;
  Uncount(stream, part);
  part->counted = part->position();
  calls_.at(stream.call).positions[part->group].insert(*part->counted);
}

void Pacer::Uncount(const Stream& stream, Part* part) {
  if (!part->counted) return;
  auto& positions = calls_.at(stream.call).positions;
  const auto of_group = positions.find(part->group);
  of_group->second.erase(of_group->second.find(*part->counted));
  if (of_group->second.empty()) positions.erase(of_group);
  part->counted.reset();
}

// Updates whether the stream holds others, and at which position.
void Pacer::Place(uint64_t id, const Stream& stream, Part* part) {
  Group& group = *part->group;
  // If a stream has not reported a position, it counts as being where the others began.
  const int64_t stated = part->position();
  const int64_t position = stated == kNever ? group.base : stated;
  const bool comes = stream.backlog || stream.call == nullptr;
  const int64_t at = comes && position != kNoLimit ? position : kNever;
  Holders* const in = at == kNever             ? nullptr
                      : stream.call == nullptr ? &group.away
                                               : &group.connected;
  if (at == part->held_at && in == part->held_in) return;
  Unplace(id, part);
  if (in == nullptr) return;
  in->emplace(at, id);
  part->held_at = at;
  part->held_in = in;
}

void Pacer::Unplace(uint64_t id, Part* part) {
  if (part->held_in != nullptr) part->held_in->erase({part->held_at, id});
  part->held_at = kNever;
  part->held_in = nullptr;
}

// Records that the stream reported something.
void Pacer::Settle(uint64_t id, Stream* stream, std::vector<Resume>* free) {
  stream->heard = options_.now();
  for (Part& part : stream->parts) {
    Place(id, *stream, &part);
    Release(part.group, free);
  }
}

// Returns the position of the slowest holder that is not silent; kNoLimit if there is none.
int64_t Pacer::Slowest(Group* group, Holders* holders) {
  const Clock::time_point now = options_.now();
  while (!holders->empty()) {
    const auto [position, id] = *holders->begin();
    Stream& stream = streams_.at(id);
    if (now - stream.heard <= options_.patience) return position;
    for (Part& part : stream.parts) {
      if (part.group == group) Unplace(id, &part);
    }
  }
  return kNoLimit;
}

int64_t Pacer::Limit(Group* group, bool shared) {
  int64_t slowest = Slowest(group, &group->connected);
  if (!shared) {
    const bool more_may_come = !group->alone && group->speakers.size() < group->world &&
                               options_.now() - group->since <= options_.patience;
    if (more_may_come && group->base != kNever) slowest = std::min(slowest, group->base);
    slowest = std::min(slowest, Slowest(group, &group->away));
  }
  return slowest == kNoLimit ? kNoLimit : slowest + options_.window / 2;
}

void Pacer::Release(Group* group, std::vector<Resume>* free) {
  for (const bool shared : {false, true}) {
    auto& stopped = group->stopped[shared ? 1 : 0];
    if (stopped.empty()) continue;
    const int64_t limit = Limit(group, shared);
    while (!stopped.empty() && stopped.begin()->first <= limit) {
      const auto first = stopped.begin();
      std::erase_if(streams_.at(first->second.stream).stopped,
                    [&](const auto& at) { return at.place == first; });
      free->push_back(std::move(first->second.resume));
      stopped.erase(first);
      --stopped_;
    }
  }
}

void Pacer::ReleaseStream(Stream* stream, std::vector<Resume>* free) {
  for (const auto& [group, shared, place] : stream->stopped) {
    free->push_back(std::move(place->second.resume));
    group->stopped[shared ? 1 : 0].erase(place);
    --stopped_;
  }
  stream->stopped.clear();
}

// Moves the stream to a call; null: to none.
void Pacer::EnterCall(Stream* stream, const void* call) {
  for (Part& part : stream->parts) Uncount(*stream, &part);
  const auto former = calls_.find(stream->call);
  if (former != calls_.end() && --former->second.streams == 0) calls_.erase(former);
  stream->call = call;
  if (call == nullptr) return;
  ++calls_[call].streams;
  for (Part& part : stream->parts) Count(*stream, &part);
}

void Pacer::Drop(uint64_t id, Stream* stream, std::list<Part>::iterator part,
                 std::vector<Resume>* free) {
  ReleaseStream(stream, free);
  Uncount(*stream, &*part);
  Group* const group = part->group;
  Unplace(id, &*part);
  stream->parts.erase(part);
  Release(group, free);
  if (--group->parts == 0) groups_.erase(std::string(group->key));
}

void Pacer::Forget(uint64_t id, std::vector<Resume>* free) {
  const auto found = streams_.find(id);
  while (!found->second.parts.empty()) Drop(id, &found->second, found->second.parts.begin(), free);
  streams_.erase(found);
}

void Pacer::Join(uint64_t id, const void* call, const v1::Hello& hello, std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  Stream& stream = streams_[id];
  ReleaseStream(&stream, free);
  EnterCall(&stream, call);
  stream.shared = hello.shared();
  const v1::Heartbeat& state = hello.state();
  stream.backlog = state.queued_batches() != 0;
  const bool known = state.any_step() && IsStep(state.oldest_unsent_step()) &&
                     state.oldest_unsent_step() <= state.newest_step();
  for (const v1::Source& source : hello.sources()) {
    Part& part = Speak(id, &stream, source, free);
    if (stream.backlog && known)
      Advance(&stream, &part, source.rank(), state.oldest_unsent_step() - 1);
  }
  Settle(id, &stream, free);
}

void Pacer::Leave(uint64_t id, std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  ReleaseStream(&stream, free);
  EnterCall(&stream, nullptr);
  Settle(id, &stream, free);
  const bool finished = std::all_of(stream.parts.begin(), stream.parts.end(),
                                    [](const Part& p) { return p.position() == kNoLimit; });
  if (finished) Forget(id, free);
}

void Pacer::Restore(uint64_t id, const v1::Source& source, int64_t through, bool over, bool alone,
                    std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  const auto known = groups_.find(KeyOf(source));
  const bool spoken = known != groups_.end() && known->second.speakers.contains(source.rank());
  if (spoken && known->second.speakers.at(source.rank()) != id) return;
  Stream& stream = streams_[id];
  Part& part = Speak(id, &stream, source, free);
  if (over && stream.call == nullptr) Finish(&stream, &part, source.rank());
  part.group->alone |= alone;
  if (IsStep(through)) Advance(&stream, &part, source.rank(), through);
  Settle(id, &stream, free);
}

// Pauses the stream. Returns false if its call is not ahead in each of its groups.
bool Pacer::Stop(uint64_t id, Stream* stream, Resume resume) {
  Group* ahead = nullptr;
  int64_t at = 0;
  for (const Part& part : stream->parts) {
    const int64_t position = CallPosition(*stream, part);
    if (position == kNever || position == kNoLimit || position <= Limit(part.group, stream->shared))
      return false;
    ahead = part.group;
    at = position;
  }
  if (ahead == nullptr) return false;
  auto& stopped = ahead->stopped[stream->shared ? 1 : 0];
  stream->stopped.push_back(
      {ahead, stream->shared, stopped.emplace(at, Stopped{id, std::move(resume)})});
  ++stopped_;
  return true;
}

bool Pacer::Hear(uint64_t id, const v1::Batch& batch, uint64_t unsent, Resume resume,
                 std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.call == nullptr) return true;
  Stream& stream = found->second;
  stream.backlog = unsent != 0;
  for (const v1::Progress& progress : batch.progress()) {
    const v1::Source& source = batch.sources(static_cast<int>(progress.source()));
    Part& part = Speak(id, &stream, source, free);
    if (progress.finished()) Finish(&stream, &part, source.rank());
    if (!progress.any_step() || !IsStep(progress.complete_through())) continue;
    Advance(&stream, &part, source.rank(), progress.complete_through());
  }
  Settle(id, &stream, free);
  return resume == nullptr || !Stop(id, &stream, std::move(resume));
}

void Pacer::Hear(uint64_t id, const v1::Heartbeat& heartbeat, std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  found->second.backlog =
      heartbeat.any_step() && heartbeat.oldest_unsent_step() <= heartbeat.newest_step();
  Settle(id, &found->second, free);
}

void Pacer::Tick(std::vector<Resume>* free) {
  const MutexLock lock(mutex_);
  const Clock::time_point now = options_.now();
  std::vector<uint64_t> over;
  for (const auto& [id, stream] : streams_) {
    if (stream.call == nullptr && now - stream.heard > options_.patience) over.push_back(id);
  }
  for (const uint64_t id : over) Forget(id, free);
  for (auto& [key, group] : groups_) Release(&group, free);
}

size_t Pacer::streams() const {
  const MutexLock lock(mutex_);
  return streams_.size();
}

size_t Pacer::stopped() const {
  const MutexLock lock(mutex_);
  return stopped_;
}

}  // namespace plumbline::server
