// The streams that the server knows, connected or not, and which stream owns which rank.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/journal/stream_positions.h"
#include "server/stream/attempts.h"
#include "server/stream/claimed_ranks.h"
#include "server/stream/judge_queue.h"
#include "server/stream/sequencer.h"
#include "server/stream/series_sets.h"
#include "server/stream/shared_bytes.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// The current connection of a stream. Its methods may be called from any thread, but not with the
// stream's mutex held. They are quick.
class Connection {
 public:
  virtual ~Connection() = default;
  // Called when everything up to `sequence` is held.
  virtual void OnHeld(uint64_t sequence, bool at_once) = 0;
  virtual void OnRefused(uint64_t sequence, const std::string& reason) = 0;
  // Called when a newer connection replaces this one.
  virtual void OnSuperseded() = 0;
  // Called when there is space again: continues reading.
  virtual void Resume() = 0;
  // Returns a pointer that is equal for all streams that are read by one call.
  virtual const void* call() const = 0;
  // Sends the agent a request, which may be lost with the connection.
  virtual void OnDirective(const v1::Directive& /*directive*/) {}
};

// The part of a stream that outlives its connections. `mutex` guards everything after it. It is
// held while batches are passed on, so that they reach the journal in order even if an old
// connection is still open.
struct StreamState {
  StreamState(uint64_t stream_id, const Sequencer::Limits& limits, uint64_t held_before = 0,
              SharedBytes::Held bytes = {})
      : id(stream_id),
        sequencer(limits, held_before),
        held(held_before),
        set_bytes(std::move(bytes)) {}

  const uint64_t id;
  Mutex mutex;
  // batches that were passed on; the journal may not hold them yet
  Sequencer sequencer PLUMB_GUARDED_BY(mutex);
  uint64_t held PLUMB_GUARDED_BY(mutex);                    // by the journal, up to here
  uint64_t connection PLUMB_GUARDED_BY(mutex) = 0;          // the newest; older ones are ignored
  std::weak_ptr<Connection> owner PLUMB_GUARDED_BY(mutex);  // the newest one
  ClaimedRanks ranks PLUMB_GUARDED_BY(mutex);               // announced or named in a batch
  size_t ranks_kept PLUMB_GUARDED_BY(mutex) = 0;  // the first of these, which the journal holds
  std::vector<v1::Source> former PLUMB_GUARDED_BY(mutex);  // its ranks in an earlier process
  SeriesSets sets PLUMB_GUARDED_BY(mutex);  // declared so far, in order of the numbers
  // Counts the bytes of their records, which the journal's table keeps as well.
  SharedBytes::Held set_bytes PLUMB_GUARDED_BY(mutex);
  std::string owner_entries
      PLUMB_GUARDED_BY(mutex);  // of the newest connection's caller (shares.h)
  const std::shared_ptr<JudgeItem::Beat> beat = std::make_shared<JudgeItem::Beat>();
};

// Limits for all streams together, and each sender's share of them.
struct StreamLimits {
  size_t streams = 20000;
  size_t ranks = 200'000;  // claimed by all streams
  Shares shares;
  std::shared_ptr<SharedBytes> names = nullptr;  // memory for the sets' names; null: no limit
};

class StreamTable {
 public:
  StreamTable(StreamLimits most, const Sequencer::Limits& limits)
      : most_(std::move(most)), limits_(limits) {}
  StreamTable(size_t max_streams, const Sequencer::Limits& limits)
      : StreamTable(StreamLimits{.streams = max_streams}, limits) {}

  // Restores the streams of an earlier process. Call first.
  void Restore(const StreamPositions& incident_table);

  // Returns the state of `stream_id`, new or old, and makes `owner` its owner. Returns
  // ResourceExhausted if too many streams are connected, or too many of the owner's. Otherwise
  // unconnected streams are evicted: the owner's own if its share is used up, else those of the
  // owner with the most.
  // A `connection` (a relay's has many streams; empty: not known) gets one more stream while it has
  // fewer streams than remain.
  absl::StatusOr<std::shared_ptr<StreamState>> Open(uint64_t stream_id,
                                                    const std::string& owner = "",
                                                    const std::string& connection = "");
  // Returns OK if `may_write` allows every run of the stream so far, also of a former process, and
  // `hello` names one of its ranks. A hello with another process's stream id must not end that
  // process's connection, nor continue its numbers. PermissionDenied does not name the owner.
  absl::Status MayTakeOver(const v1::Hello& hello,
                           const std::function<bool(const std::string&)>& may_write) const;
  // Marks the stream as unconnected; it may be evicted.
  void Closed(uint64_t stream_id);

  // Gives the rank `source` to `stream_id`. Returns AlreadyExists while another connected stream
  // has it, because two processes with the same rank would be judged as one. Returns
  // ResourceExhausted if there are too many ranks: a connection of a sender without a share gets
  // one more rank while it has fewer ranks than remain.
  absl::Status Claim(uint64_t stream_id, const v1::Source& source);
  void Release(uint64_t stream_id, const v1::Source& source);

  // Returns what must be added to the attempts that the process of `hello` sends (attempts.h).
  uint32_t AttemptsAhead(const v1::Hello& hello) const;
  // Records the stream with the attempts that were given.
  void Greeted(const v1::Hello& hello, uint32_t ahead);
  // Records that all its ranks have ended, though its connection may stay open a little longer.
  void SentGoodbye(uint64_t stream_id);

  bool Knows(uint64_t stream_id) const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<StreamState> state;
    bool connected = false;
    std::list<uint64_t>::iterator idle;             // valid while not connected
    std::unordered_set<const std::string*> claims;  // keys in claims_ of the ranks that it has
    std::string owner;
    std::string connection;  // while connected
  };
  struct Owner {
    size_t streams = 0, ranks = 0;
    std::list<uint64_t> idle;  // not connected, oldest first
  };
  using Streams = std::unordered_map<uint64_t, Entry, absl::Hash<uint64_t>>;

  bool EvictIdle(const std::string& owner) PLUMB_REQUIRES(mutex_);
  bool EvictIdle() PLUMB_REQUIRES(mutex_);
  absl::Status RoomForStream(const std::string& owner) PLUMB_REQUIRES(mutex_);
  absl::Status RoomForRank(uint64_t stream_id, const std::string& owner) PLUMB_REQUIRES(mutex_);
  absl::Status RoomOnConnection(const std::string& connection) const PLUMB_REQUIRES(mutex_);
  void Connect(Entry* entry, const std::string& connection) PLUMB_REQUIRES(mutex_);
  void Disconnect(Entry* entry) PLUMB_REQUIRES(mutex_);
  void SetOwner(Entry* entry, const std::string& owner) PLUMB_REQUIRES(mutex_);
  void Unclaim(Entry* entry, const std::string* key) PLUMB_REQUIRES(mutex_);

  const StreamLimits most_;
  const Sequencer::Limits limits_;
  mutable Mutex mutex_;
  Attempts attempts_ PLUMB_GUARDED_BY(mutex_);  // of the streams below
  // Seeded hashes, because senders choose the numbers and names.
  Streams streams_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, Owner> owners_
      PLUMB_GUARDED_BY(mutex_);  // at most one per access entry or combination of entries
  size_t connected_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_connections_ PLUMB_GUARDED_BY(mutex_);  // connected streams
  std::map<std::string, size_t> ranks_of_connections_ PLUMB_GUARDED_BY(mutex_);  // of those
  std::unordered_map<std::string, uint64_t, absl::Hash<std::string>> claims_
      PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
