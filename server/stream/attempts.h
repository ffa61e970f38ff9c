// Determines which attempt of its run a process belongs to. A process without a configured attempt,
// and without records that would give it, sends 0 at every start. Its steps start again from 0, so
// without this they would count as late evidence of the earlier process.
//
// A new attempt begins with a trainer process whose rank another process of the same or a later
// attempt has used, or whose world has another size. The other processes of its launch join it.
// This happens only if no earlier process of the run is connected, because a job restarts as a
// whole. If some processes continue, the new process replaces the one that ended, in the attempt
// that the new process sends. If a process sends an attempt that is later than all earlier ones,
// this attempt is used.
//
// All attempts that a stream's process sends are raised by the same number as long as the stream is
// known, also after a restart of the server: the journal holds the given attempts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/ingest.pb.h"

namespace plumbline::server {

// Not thread-safe. Remembers the first kMostRanks ranks of each stream, and all streams that are
// not forgotten.
class Attempts {
 public:
  static constexpr size_t kMostRanks = 8;

  // Returns what must be added to every attempt that the process of `hello` sends. Changes nothing.
  uint32_t Ahead(const v1::Hello& hello) const;

  // Records that a connected stream has `sources`, whose attempts were raised by `ahead`. If called
  // again, adds new sources.
  void Joined(uint64_t stream_id, const std::vector<v1::Source>& sources, uint32_t ahead);
  // Restores a stream that an earlier server knew, with the attempts that were given then.
  void Restore(uint64_t stream_id, const std::vector<v1::Source>& sources);
  // Records that the stream's connection is gone, or that its process sent a goodbye.
  void Left(uint64_t stream_id);
  void Forget(uint64_t stream_id);

  // Adds `ahead` to the attempts of all sources.
  static void Raise(uint32_t ahead, google::protobuf::RepeatedPtrField<v1::Source>* sources);

 private:
  struct Rank {
    uint64_t stream = 0;
    uint32_t attempt = 0;
  };
  struct Run {
    uint32_t latest = 0, world = 0;
    bool raised = false;                 // true if the latest attempt was given, not sent
    std::map<uint32_t, uint32_t> there;  // connected streams by attempt
    uint32_t streams = 0;                // known streams of the run
  };
  struct Stream {
    std::map<std::string, uint32_t> ranks;  // the earliest attempt of each rank
    std::map<std::string, uint32_t> runs;   // the latest attempt of each run
    bool connected = false;
    std::optional<uint32_t> ahead;  // empty: restored from an earlier server
  };

  uint32_t GivenTo(const v1::Source& source) const;
  void Add(uint64_t stream_id, Stream* stream, const std::vector<v1::Source>& sources, bool raised);
  void Count(const Stream& stream, int change);

  template <typename V>
  using ByText = std::unordered_map<std::string, V, absl::Hash<std::string>>;
  std::unordered_map<uint64_t, Stream, absl::Hash<uint64_t>> streams_;
  ByText<Rank> ranks_;  // the latest stream of each rank, by RankKey
  ByText<Run> runs_;
};

}  // namespace plumbline::server
