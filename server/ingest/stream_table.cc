#include "server/ingest/stream_table.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

// Numbers first: nothing a run may be called can then imitate another key.
std::string RankKey(const v1::Source& s) {
  return absl::StrCat(static_cast<int>(s.role()), "/", s.rank(), "/", s.run());
}
std::string ClaimKey(const v1::Source& s) { return absl::StrCat(s.attempt(), "/", RankKey(s)); }

}  // namespace

void StreamTable::Restore(const StreamBook& book) {
  std::lock_guard lock(mutex_);
  for (const auto& [age, id] : book.by_age()) {
    const StreamBook::Stream& known = book.streams().at(id);
    Entry entry;
    entry.state = std::make_shared<StreamState>(id, limits_, known.sequence);
    for (const auto& [set, record] : known.sets) entry.state->sets.Restore(record);
    for (const SourceRecord& record : known.sources) {
      entry.state->former.emplace_back().ParseFromString(record);
    }
    entry.idle = idle_.insert(idle_.end(), id);
    streams_.emplace(id, std::move(entry));
  }
}

absl::StatusOr<std::shared_ptr<StreamState>> StreamTable::Open(uint64_t stream_id) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream_id);
  if (found != streams_.end()) {
    Entry& entry = found->second;
    if (!entry.connected) idle_.erase(entry.idle);
    entry.connected = true;
    return entry.state;
  }
  if (streams_.size() >= max_streams_) EvictIdle();
  if (streams_.size() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this server already serves ", max_streams_, " streams (ingest.max_streams)"));
  }
  Entry entry;
  entry.state = std::make_shared<StreamState>(stream_id, limits_);
  entry.connected = true;
  return streams_.emplace(stream_id, std::move(entry)).first->second.state;
}

absl::Status StreamTable::MayTakeOver(
    const v1::Hello& hello, const std::function<bool(const std::string&)>& may_write) const {
  std::shared_ptr<StreamState> state;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(hello.stream_id());
    if (found == streams_.end()) return absl::OkStatus();
    state = found->second.state;
  }
  std::vector<v1::Source> owners;
  std::set<std::string> runs;
  {
    std::lock_guard lock(state->mutex);
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
      "this stream belongs to another rank: a process draws a stream id of its own");
}

void StreamTable::EvictIdle() {
  if (idle_.empty()) return;
  const auto oldest = streams_.find(idle_.front());
  for (const std::string* key : oldest->second.claims) claims_.erase(claims_.find(*key));
  streams_.erase(oldest);
  idle_.pop_front();
}

void StreamTable::Closed(uint64_t stream_id) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream_id);
  if (found == streams_.end() || !found->second.connected) return;
  found->second.connected = false;
  found->second.idle = idle_.insert(idle_.end(), stream_id);
}

absl::Status StreamTable::Claim(uint64_t stream_id, const v1::Source& source) {
  std::lock_guard lock(mutex_);
  const auto [claim, fresh] = claims_.try_emplace(ClaimKey(source), 0);
  uint64_t& holder = claim->second;
  if (holder == stream_id) return absl::OkStatus();
  if (const auto other = streams_.find(holder); !fresh && other != streams_.end()) {
    if (other->second.connected) {
      return absl::AlreadyExistsError(absl::StrCat(
          "rank ", source.rank(), " of run \"", source.run(), "\" (attempt ", source.attempt(),
          ") is already reported by another connected process; "
          "give this run another name or attempt"));
    }
    other->second.claims.erase(&claim->first);
  }
  holder = stream_id;
  if (const auto own = streams_.find(stream_id); own != streams_.end())
    own->second.claims.insert(&claim->first);
  return absl::OkStatus();
}

void StreamTable::Release(uint64_t stream_id, const v1::Source& source) {
  std::lock_guard lock(mutex_);
  const auto found = claims_.find(ClaimKey(source));
  if (found == claims_.end() || found->second != stream_id) return;
  if (const auto own = streams_.find(stream_id); own != streams_.end())
    own->second.claims.erase(&found->first);
  claims_.erase(found);
}

size_t StreamTable::size() const {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

}  // namespace plumbline::server
