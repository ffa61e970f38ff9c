// Keeps the streams of a run near each other. Steps stay open for an expected rank (judge/
// run_table.h), and batches that are read from the other ranks meanwhile would fill the memory.
// Unread data waits in the agents' outboxes and spools.
//
// A stream holds the others of its run (same attempt and role) while it has unread batches, and
// after it was disconnected. Ranks of the declared world that have sent no hello also hold the
// others. A stream that is more than half a window ahead of the slowest holder is not read until
// the holder has come closer. A rank that is only slow has no backlog and holds no stream. A rank
// that has sent no report for `patience` holds no stream either.
//
// Only connected streams hold a shared call (a relay's): the hello of an unconnected rank may be in
// the unread part of the call, so that the call would wait for its own data.
//
// The cost of a report does not grow with the number of ranks of its stream, its call or its run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "base/mutex.h"
#include "plumbline/v1/ingest.pb.h"

namespace plumbline::server {

// Thread-safe. Functions that resume reading are returned in `free`; the caller must call them
// while it holds no lock.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  using Resume = std::function<void()>;

  struct Options {
    int64_t window = 64;  // steps
    std::chrono::nanoseconds patience = std::chrono::seconds(5);
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };

  explicit Pacer(Options options) : options_(std::move(options)) {}
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  // Adds a connection of the stream. Streams of one `call` are read together, so they are paused
  // together, if the slowest of them is ahead. Reports of another connection are forgotten.
  void Join(uint64_t stream, const void* call, const v1::Hello& hello, std::vector<Resume>* free);
  // Removes the connection. Its unfinished ranks hold others until patience ends: their process may
  // return, or another one may replace it.
  void Leave(uint64_t stream, std::vector<Resume>* free);
  // Restores a rank that an earlier server knew, and its progress (the least int64: none). `over`:
  // no rank waits for this rank. `alone`: no rank waits for ranks of its world that never came.
  // Reports of streams replace this.
  void Restore(uint64_t stream, const v1::Source& source, int64_t through, bool over, bool alone,
               std::vector<Resume>* free);

  // Records that a batch of a joined stream was read; its progress uses the stream's sources, and
  // `unsent` batches follow. Returns false if the stream is ahead. Then do not read on before
  // `resume`, which is returned once in the `free` of a later call. If `resume` is null, it is not
  // paused.
  bool Hear(uint64_t stream, const v1::Batch& batch, uint64_t unsent, Resume resume,
            std::vector<Resume>* free);
  // Records a heartbeat.
  void Hear(uint64_t stream, const v1::Heartbeat& heartbeat, std::vector<Resume>* free);

  // Resumes streams that are held only by silent streams, and forgets streams that do not return.
  // Call about every second.
  void Tick(std::vector<Resume>* free);

  size_t streams() const;  // known
  size_t stopped() const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  // Limit per stream. A process reports for one run; if it names more, or many attempts, only the
  // last ones count.
  static constexpr size_t kMostParts = 32;

  struct Stopped {
    uint64_t stream;
    Resume resume;
  };
  using Holders = std::set<std::pair<int64_t, uint64_t>>;  // (position, stream)
  // The ranks of one attempt of one role of one run.
  struct Group {
    std::string key;
    Holders connected, away;
    // By position: streams of separate calls, and of shared calls.
    std::multimap<int64_t, Stopped> stopped[2];
    int64_t base = kNever;  // the first reported position
    uint32_t world = 0;
    bool alone = false;                               // ranks that never came are not awaited
    Clock::time_point since;                          // when it became known
    std::unordered_map<uint32_t, uint64_t> speakers;  // the owning stream, by rank
    size_t parts = 0;
  };
  struct Rank {
    int64_t through = kNever;  // complete up to here
    bool finished = false;
  };
  // The state of a stream in one group.
  struct Part {
    std::string run;
    uint32_t attempt = 0;
    int role = 0;
    Group* group = nullptr;
    std::unordered_map<uint32_t, Rank> ranks;
    std::set<std::pair<int64_t, uint32_t>> unfinished;  // those not finished: (through, rank)
    int64_t held_at = kNever;                           // its position in one of its group's sets
    Holders* held_in = nullptr;                         // that set; null: it holds no stream
    std::optional<int64_t> counted;                     // its position in its call
    // Returns kNoLimit if every rank has finished, kNever while one has not reported its progress.
    int64_t position() const;
  };
  struct Stream {
    const void* call = nullptr;  // null: not connected
    std::list<Part> parts;       // the last one used first
    bool shared = false;         // true if the call carries others, too
    bool backlog = false;
    Clock::time_point heard;
    struct At {
      Group* group;
      bool shared;
      std::multimap<int64_t, Stopped>::iterator place;
    };
    std::vector<At> stopped;
  };
  struct Call {
    size_t streams = 0;
    std::unordered_map<const Group*, std::multiset<int64_t>> positions;  // of its streams' parts
  };

  int64_t CallPosition(const Stream& stream, const Part& part) const PLUMB_REQUIRES(mutex_);
  Part& PartOf(uint64_t id, Stream* stream, const v1::Source& source, std::vector<Resume>* free)
      PLUMB_REQUIRES(mutex_);
  Part& Speak(uint64_t id, Stream* stream, const v1::Source& source, std::vector<Resume>* free)
      PLUMB_REQUIRES(mutex_);
  void TakeOver(uint64_t id, uint64_t former, Group* group, uint32_t rank) PLUMB_REQUIRES(mutex_);
  void Advance(Stream* stream, Part* part, uint32_t rank, int64_t through) PLUMB_REQUIRES(mutex_);
  void Finish(Stream* stream, Part* part, uint32_t rank) PLUMB_REQUIRES(mutex_);
  void Count(const Stream& stream, Part* part) PLUMB_REQUIRES(mutex_);
  void Uncount(const Stream& stream, Part* part) PLUMB_REQUIRES(mutex_);
  void Place(uint64_t id, const Stream& stream, Part* part) PLUMB_REQUIRES(mutex_);
  void Settle(uint64_t id, Stream* stream, std::vector<Resume>* free) PLUMB_REQUIRES(mutex_);
  bool Stop(uint64_t id, Stream* stream, Resume resume) PLUMB_REQUIRES(mutex_);
  void EnterCall(Stream* stream, const void* call) PLUMB_REQUIRES(mutex_);
  void Drop(uint64_t id, Stream* stream, std::list<Part>::iterator part, std::vector<Resume>* free)
      PLUMB_REQUIRES(mutex_);
  void Forget(uint64_t id, std::vector<Resume>* free) PLUMB_REQUIRES(mutex_);
  static void Unplace(uint64_t id, Part* part);
  int64_t Slowest(Group* group, Holders* holders) PLUMB_REQUIRES(mutex_);
  int64_t Limit(Group* group, bool shared) PLUMB_REQUIRES(mutex_);
  void Release(Group* group, std::vector<Resume>* free) PLUMB_REQUIRES(mutex_);
  void ReleaseStream(Stream* stream, std::vector<Resume>* free) PLUMB_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::map<std::string, Group> groups_ PLUMB_GUARDED_BY(mutex_);
  // Seeded hashes, because senders choose the numbers.
  std::unordered_map<uint64_t, Stream, absl::Hash<uint64_t>> streams_ PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<const void*, Call> calls_ PLUMB_GUARDED_BY(mutex_);
  size_t stopped_ PLUMB_GUARDED_BY(mutex_) = 0;
};

}  // namespace plumbline::server
