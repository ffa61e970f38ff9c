#include "server/stream/stream_table.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/stream/rank_key.h"

namespace plumbline::server {
namespace {

std::string ClaimKey(const v1::Source& s) { return absl::StrCat(s.attempt(), "/", RankKey(s)); }

std::vector<v1::Source> SourcesOf(const StreamPositions::Stream& known) {
  std::vector<v1::Source> sources;
  for (const SourceRecord& record : known.sources) sources.emplace_back().ParseFromString(record);
  return sources;
}

// Makes a stream's state from the journal. Needs no lock, because no other thread has the stream
// yet.
std::shared_ptr<StreamState> Restored(
    uint64_t id, const Sequencer::Limits& limits, const StreamPositions::Stream& known,
    const std::shared_ptr<SharedBytes>& names) PLUMB_NO_THREAD_SAFETY_ANALYSIS {
  auto state =
      std::make_shared<StreamState>(id, limits, known.sequence, SharedBytes::Held(names, ""));
  for (const auto& [set, record] : known.sets) {
    state->sets.Restore(record);
    state->set_bytes.Note(SeriesSets::kRecord + record.size());
  }
  state->former = SourcesOf(known);
  return state;
}

}  // namespace

void StreamTable::Restore(const StreamPositions& incident_table) {
  const MutexLock lock(mutex_);
  for (const auto& [age, id] : incident_table.by_age()) {
    Entry entry;
    entry.state = Restored(id, limits_, incident_table.streams().at(id), most_.names);
    attempts_.Restore(id, SourcesOf(incident_table.streams().at(id)));
    std::list<uint64_t>& idle = owners_[""].idle;
    entry.idle = idle.insert(idle.end(), id);
    ++owners_[""].streams;
    streams_.emplace(id, std::move(entry));
  }
}

absl::StatusOr<std::shared_ptr<StreamState>> StreamTable::Open(uint64_t stream_id,
                                                               const std::string& owner,
                                                               const std::string& connection) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(stream_id);
  if (found != streams_.end()) {
    if (auto s = RoomOnConnection(connection); !s.ok()) return s;
    Entry& entry = found->second;
    if (entry.connected) {
      Disconnect(&entry);
    } else {
      owners_[entry.owner].idle.erase(entry.idle);
    }
    Connect(&entry, connection);
    SetOwner(&entry, owner);
    return entry.state;
  }
  if (auto s = RoomForStream(owner); !s.ok()) return s;
  if (auto s = RoomOnConnection(connection); !s.ok()) return s;
  Entry entry;
  entry.state =
      std::make_shared<StreamState>(stream_id, limits_, 0, SharedBytes::Held(most_.names, owner));
  Connect(&entry, connection);
  entry.owner = owner;
  ++owners_[owner].streams;
  return streams_.emplace(stream_id, std::move(entry)).first->second.state;
}

absl::Status StreamTable::RoomOnConnection(const std::string& connection) const {
  const auto own = of_connections_.find(connection);
  const size_t left = most_.streams - std::min(most_.streams, connected_);
  if (connection.empty() || own == of_connections_.end() || own->second < left)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "this connection has ", own->second, " of the ", most_.streams,
      " streams that this server serves (ingest.max_streams), and ", left, " are left"));
}

void StreamTable::Connect(Entry* entry, const std::string& connection) {
  entry->connected = true;
  entry->connection = connection;
  ++connected_;
  ++of_connections_[connection];
  ranks_of_connections_[connection] += entry->claims.size();
}

void StreamTable::Disconnect(Entry* entry) {
  entry->connected = false;
  --connected_;
  const auto own = of_connections_.find(entry->connection);
  ranks_of_connections_[entry->connection] -= entry->claims.size();
  if (--own->second > 0) return;
  of_connections_.erase(own);
  ranks_of_connections_.erase(entry->connection);
}

// Sets the owner. A stream of an earlier process has no owner until it reconnects.
void StreamTable::SetOwner(Entry* entry, const std::string& owner) {
  if (entry->owner == owner) return;
  Owner& former = owners_[entry->owner];
  --former.streams;
  former.ranks -= entry->claims.size();
  entry->owner = owner;
  ++owners_[owner].streams;
  owners_[owner].ranks += entry->claims.size();
}

absl::Status StreamTable::RoomForStream(const std::string& owner) {
  const Owner& own = owners_[owner];
  if (own.streams >= most_.shares.Part(owner, most_.streams) && !EvictIdle(owner)) {
    return absl::ResourceExhaustedError(
        most_.shares.Full(owner, most_.streams, "streams", "ingest.max_streams"));
  }
  if (streams_.size() < most_.streams || EvictIdle()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this server already serves ", most_.streams, " streams (ingest.max_streams)"));
}

absl::Status StreamTable::RoomForRank(uint64_t stream_id, const std::string& owner) {
  const auto of = streams_.find(stream_id);
  if (of == streams_.end()) return absl::OkStatus();
  const Owner& own = owners_[owner];
  while (own.ranks >= most_.shares.Part(owner, most_.ranks)) {
    if (EvictIdle(owner)) continue;
    return absl::ResourceExhaustedError(
        most_.shares.Full(owner, most_.ranks, "ranks", "ingest.max_ranks"));
  }
  while (claims_.size() >= most_.ranks) {
    if (EvictIdle()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("this server already serves ", most_.ranks, " ranks (ingest.max_ranks)"));
  }
  const std::string& connection = of->second.connection;
  const auto own_ranks = ranks_of_connections_.find(connection);
  const size_t left = most_.ranks - claims_.size();
  const bool has_share = most_.shares.Part(owner, most_.ranks) < most_.ranks;
  if (has_share || connection.empty() || own_ranks == ranks_of_connections_.end() ||
      own_ranks->second < left)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this connection has ", own_ranks->second, " of the ", most_.ranks,
                   " ranks that this server serves (ingest.max_ranks), and ", left, " are left"));
}

absl::Status StreamTable::MayTakeOver(
    const v1::Hello& hello, const std::function<bool(const std::string&)>& may_write) const {
  std::shared_ptr<StreamState> state;
  {
    const MutexLock lock(mutex_);
    const auto found = streams_.find(hello.stream_id());
    if (found == streams_.end()) return absl::OkStatus();
    state = found->second.state;
  }
  std::vector<v1::Source> owners;
  std::set<std::string> runs;
  {
    const MutexLock lock(state->mutex);
    owners = state->former;
    owners.insert(owners.end(), state->ranks.list().begin(), state->ranks.list().end());
    runs = state->ranks.runs();
  }
  bool any_its_own = owners.empty();
  std::unordered_set<std::string> ranks;
  for (const v1::Source& owner : owners) {
    runs.insert(owner.run());
    ranks.insert(RankKey(owner));
  }
  const bool all_its_own = std::all_of(runs.begin(), runs.end(), may_write);
  for (const v1::Source& source : hello.sources()) {
    any_its_own = any_its_own || ranks.contains(RankKey(source));
  }
  if (all_its_own && any_its_own) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this stream belongs to another rank: each process must draw its own stream id");
}

bool StreamTable::EvictIdle(const std::string& name) {
  Owner& owner = owners_[name];
  if (owner.idle.empty()) return false;
  const auto oldest = streams_.find(owner.idle.front());
  owner.ranks -= oldest->second.claims.size();
  for (const std::string* key : oldest->second.claims) claims_.erase(claims_.find(*key));
  attempts_.Forget(oldest->first);
  streams_.erase(oldest);
  owner.idle.pop_front();
  --owner.streams;
  return true;
}

// Evicts an idle stream of the owner with the most idle streams, so that a sender which opens and
// leaves many streams loses its own streams.
bool StreamTable::EvictIdle() {
  const auto most = std::max_element(
      owners_.begin(), owners_.end(),
      [](const auto& a, const auto& b) { return a.second.idle.size() < b.second.idle.size(); });
  return most != owners_.end() && EvictIdle(most->first);
}

void StreamTable::Closed(uint64_t stream_id) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(stream_id);
  if (found == streams_.end() || !found->second.connected) return;
  attempts_.Left(stream_id);
  std::list<uint64_t>& idle = owners_[found->second.owner].idle;
  Disconnect(&found->second);
  found->second.idle = idle.insert(idle.end(), stream_id);
}

void StreamTable::Unclaim(Entry* entry, const std::string* key) {
  if (entry->claims.erase(key) == 0) return;
  --owners_[entry->owner].ranks;
  if (entry->connected) --ranks_of_connections_[entry->connection];
}

absl::Status StreamTable::Claim(uint64_t stream_id, const v1::Source& source) {
  const MutexLock lock(mutex_);
  const std::string key = ClaimKey(source);
  const auto own = streams_.find(stream_id);
  if (own != streams_.end() && !claims_.contains(key)) {
    if (auto s = RoomForRank(stream_id, own->second.owner); !s.ok()) return s;
  }
  const auto [claim, fresh] = claims_.try_emplace(key, 0);
  uint64_t& holder = claim->second;
  if (holder == stream_id) return absl::OkStatus();
  if (const auto other = streams_.find(holder); !fresh && other != streams_.end()) {
    if (other->second.connected) {
      return absl::AlreadyExistsError(absl::StrCat(
          "rank ", source.rank(), " of run \"", source.run(), "\" (attempt ", source.attempt(),
          ") is already reported by another connected process; "
          "give this run another name or attempt"));
    }
    Unclaim(&other->second, &claim->first);
  }
  holder = stream_id;
  if (own != streams_.end() && own->second.claims.insert(&claim->first).second) {
    ++owners_[own->second.owner].ranks;
    if (own->second.connected) ++ranks_of_connections_[own->second.connection];
  }
  return absl::OkStatus();
}

void StreamTable::Release(uint64_t stream_id, const v1::Source& source) {
  const MutexLock lock(mutex_);
  const auto found = claims_.find(ClaimKey(source));
  if (found == claims_.end() || found->second != stream_id) return;
  if (const auto own = streams_.find(stream_id); own != streams_.end())
    Unclaim(&own->second, &found->first);
  claims_.erase(found);
}

uint32_t StreamTable::AttemptsAhead(const v1::Hello& hello) const {
  const MutexLock lock(mutex_);
  return attempts_.Ahead(hello);
}

void StreamTable::Greeted(const v1::Hello& hello, uint32_t ahead) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(hello.stream_id());
  if (found == streams_.end() || !found->second.connected) return;
  attempts_.Joined(hello.stream_id(), {hello.sources().begin(), hello.sources().end()}, ahead);
}

void StreamTable::SentGoodbye(uint64_t stream_id) {
  const MutexLock lock(mutex_);
  attempts_.Left(stream_id);
}

bool StreamTable::Knows(uint64_t stream_id) const {
  const MutexLock lock(mutex_);
  return streams_.contains(stream_id);
}

size_t StreamTable::size() const {
  const MutexLock lock(mutex_);
  return streams_.size();
}

}  // namespace plumbline::server
