// Keeps the streams of a run near each other: steps stay open for a rank that is expected (judge/
// run_table.h), and what is read of the others meanwhile would fill the memory. What is not read
// waits in the agents' outboxes and spools.
//
// A stream holds the others of its run (same attempt and role) while batches of it wait behind the
// last one that was read, and when it has broken off; so do the ranks of the declared world that
// have not said hello. A stream more than half a window ahead of the slowest that holds is not read
// until that has come closer. A rank that is slow by itself has no backlog and holds nobody; nor
// does one that was not heard of for `patience`.
//
// A shared call (a relay's) is held by connected streams alone: the hello of a rank that is not
// connected may be behind what is not read, and the call would wait for itself.
//
// A word costs what it says, however many ranks its stream, its call or its run has.
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

// Thread-safe. Streams that may be read again are handed to the caller in `free`, which calls them
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

  // A connection speaks for the stream. Streams of one `call` are read together, so they stop
  // together: when the slowest of them is ahead. Another connection's word is forgotten.
  void Join(uint64_t stream, const void* call, const v1::Hello& hello, std::vector<Resume>* free);
  // It no longer does. The ranks that had not finished hold others until patience ends: their
  // process may be about to come back, or another one in its place.
  void Leave(uint64_t stream, std::vector<Resume>* free);
  // A rank that a former server knew, and how far it was (the least int64: nowhere). `over`: nobody
  // waits for it; `alone`: nor for those of its world that never came. What streams say themselves
  // counts for more.
  void Restore(uint64_t stream, const v1::Source& source, int64_t through, bool over, bool alone,
               std::vector<Resume>* free);

  // A batch of a stream that joined was read, whose progress names sources that it has; `unsent`
  // wait behind it. False: it is ahead; do not read on before `resume`, which comes back once in
  // somebody's `free`. Null: it is not stopped whatever it says.
  bool Hear(uint64_t stream, const v1::Batch& batch, uint64_t unsent, Resume resume,
            std::vector<Resume>* free);
  // A heartbeat was.
  void Hear(uint64_t stream, const v1::Heartbeat& heartbeat, std::vector<Resume>* free);

  // Lets go whom only the silent hold, and forgets those who do not come back: call every second or
  // so.
  void Tick(std::vector<Resume>* free);

  size_t streams() const;  // known
  size_t stopped() const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  // Of one stream. A process reports for one run; who names more, or ever new attempts, is paced by
  // those it named last.
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
    // By position: streams of calls of their own, and of shared calls.
    std::multimap<int64_t, Stopped> stopped[2];
    int64_t base = kNever;  // where the first to say so began
    uint32_t world = 0;
    bool alone = false;                               // who never came is not waited for
    Clock::time_point since;                          // it is known
    std::unordered_map<uint32_t, uint64_t> speakers;  // stream, by rank
    size_t parts = 0;
  };
  struct Rank {
    int64_t through = kNever;  // complete
    bool finished = false;
  };
  // What a stream says of one group.
  struct Part {
    std::string run;
    uint32_t attempt = 0;
    int role = 0;
    Group* group = nullptr;
    std::unordered_map<uint32_t, Rank> ranks;
    std::set<std::pair<int64_t, uint32_t>> unfinished;  // of them: (through, rank)
    int64_t held_at = kNever;                           // its place in ...
    Holders* held_in = nullptr;                         // ... of its group; null: it holds none
    std::optional<int64_t> counted;                     // its place among its call's positions
    // kNoLimit when every rank has finished, kNever while one has not said how far it is.
    int64_t position() const;
  };
  struct Stream {
    const void* call = nullptr;  // null: nobody speaks for it
    std::list<Part> parts;       // the last one spoken of first
    bool shared = false;         // ... the call carries others
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
  // Senders choose the numbers.
  std::unordered_map<uint64_t, Stream, absl::Hash<uint64_t>> streams_ PLUMB_GUARDED_BY(mutex_);
  std::unordered_map<const void*, Call> calls_ PLUMB_GUARDED_BY(mutex_);
  size_t stopped_ PLUMB_GUARDED_BY(mutex_) = 0;
};

}  // namespace plumbline::server
