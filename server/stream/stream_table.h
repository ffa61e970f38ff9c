// Streams the server knows, connected or not, and which stream speaks for which rank.
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

// The connection that speaks for a stream. Its methods are called from any thread, never with the
// stream's mutex held, and are quick.
class Connection {
 public:
  virtual ~Connection() = default;
  // Everything up to `sequence` is held.
  virtual void OnHeld(uint64_t sequence, bool at_once) = 0;
  virtual void OnRefused(uint64_t sequence, const std::string& reason) = 0;
  // A newer connection speaks for the stream from now on.
  virtual void OnSuperseded() = 0;
  // There is room again: read on.
  virtual void Resume() = 0;
  // What is read together with it: the same for all streams of one call.
  virtual const void* call() const = 0;
  // The agent is asked for something. It may be lost, as the connection may.
  virtual void OnDirective(const v1::Directive& /*directive*/) {}
};

// What outlives a connection. `mutex` guards everything below it and is held while batches are
// handed on, so that they reach the journal in order even when an old connection lingers.
struct StreamState {
  StreamState(uint64_t stream_id, Sequencer::Limits limits, uint64_t held_before = 0,
              SharedBytes::Held bytes = {})
      : id(stream_id),
        sequencer(limits, held_before),
        held(held_before),
        set_bytes(std::move(bytes)) {}

  const uint64_t id;
  Mutex mutex;
  Sequencer sequencer PLUMB_GUARDED_BY(mutex);  // what was let through; it may not be held yet
  uint64_t held PLUMB_GUARDED_BY(mutex);        // by the journal, up to here
  uint64_t connection PLUMB_GUARDED_BY(mutex) =
      0;  // the newest; older ones have nothing to say any more
  std::weak_ptr<Connection> owner PLUMB_GUARDED_BY(mutex);  // the newest one
  ClaimedRanks ranks PLUMB_GUARDED_BY(mutex);               // announced or named in a batch
  size_t ranks_kept PLUMB_GUARDED_BY(mutex) = 0;  // of these, the first ones: the journal was told
  std::vector<v1::Source> former PLUMB_GUARDED_BY(mutex);  // for whom it spoke to a former process
  SeriesSets sets PLUMB_GUARDED_BY(mutex);  // declared so far, in order of the numbers
  // Of their records, which the journal's incident table keeps as well.
  SharedBytes::Held set_bytes PLUMB_GUARDED_BY(mutex);
  std::string owner_entries
      PLUMB_GUARDED_BY(mutex);  // of the newest connection's caller (shares.h)
  const std::shared_ptr<JudgeItem::Beat> beat = std::make_shared<JudgeItem::Beat>();
};

// Of all streams together, and how much of it one sender may use.
struct StreamLimits {
  size_t streams = 20000;
  size_t ranks = 200'000;  // that they speak for
  Shares shares;
  std::shared_ptr<SharedBytes> names = nullptr;  // that their sets take; null: no bound
};

class StreamTable {
 public:
  StreamTable(StreamLimits most, Sequencer::Limits limits)
      : most_(std::move(most)), limits_(limits) {}
  StreamTable(size_t max_streams, Sequencer::Limits limits)
      : StreamTable(StreamLimits{.streams = max_streams}, limits) {}

  // Takes up the streams of a former process. Before anything else.
  void Restore(const StreamPositions& incident_table);

  // The state of `stream_id`, new or old, which is `owner`'s from now on. ResourceExhausted when
  // too many streams are connected, or too many of the owner's. What is not connected makes room:
  // of the owner's own where that has its share, else of whom most are known.
  // Of one `connection` (a relay's has many streams; empty: not known) it opens one more while that
  // has fewer than are left.
  absl::StatusOr<std::shared_ptr<StreamState>> Open(uint64_t stream_id,
                                                    const std::string& owner = "",
                                                    const std::string& connection = "");
  // OK when `may_write` allows every run that the stream has spoken for so far, in a former process
  // too, and `hello` names one of its ranks: a hello with another's stream id must not end that
  // one's connection, nor go on under its numbers. PermissionDenied does not say whose it is.
  absl::Status MayTakeOver(const v1::Hello& hello,
                           const std::function<bool(const std::string&)>& may_write) const;
  // The stream may be forgotten when room is needed.
  void Closed(uint64_t stream_id);

  // `stream_id` speaks for `source` from now on. AlreadyExists while another connected stream does:
  // two processes that claim one rank would be judged as one. ResourceExhausted: too many ranks.
  absl::Status Claim(uint64_t stream_id, const v1::Source& source);
  void Release(uint64_t stream_id, const v1::Source& source);

  // How many attempts the process behind `hello` is ahead of what it says (attempts.h).
  uint32_t AttemptsAhead(const v1::Hello& hello) const;
  // It is taken in, with the attempts that were given.
  void Greeted(const v1::Hello& hello, uint32_t ahead);
  // All its ranks have ended, though its connection may stay a moment longer.
  void SaidGoodbye(uint64_t stream_id);

  bool Knows(uint64_t stream_id) const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<StreamState> state;
    bool connected = false;
    std::list<uint64_t>::iterator idle;             // valid while not connected
    std::unordered_set<const std::string*> claims;  // keys of claims_ that it holds
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
  // Senders choose the numbers and names: hashes that nobody outside can foresee.
  Streams streams_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, Owner> owners_
      PLUMB_GUARDED_BY(mutex_);  // as many as there are entries, and combinations of them
  size_t connected_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_connections_ PLUMB_GUARDED_BY(mutex_);  // connected streams
  std::unordered_map<std::string, uint64_t, absl::Hash<std::string>> claims_
      PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
