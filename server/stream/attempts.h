// Which attempt of its run a process is of. One that was told no attempt, and keeps no records that
// would tell it, says 0 at every start; its steps begin anew, and without this they would count as
// late evidence of the process before it.
//
// A trainer's process whose rank another one of the same or a later attempt spoke for begins a new
// attempt; so does one of a world of another size. The others of its launch join it. Only where no
// process of the run is connected that was there before: a job is restarted as a whole, and where
// some go on the new one takes the place of the one that ended, as it says. What is said to be
// later than all before is taken as said.
//
// What a stream's process says is raised by the same number as long as the stream is known, also
// when it comes back to a server that was restarted: the journal holds what was given.
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

// Not thread-safe. Of a stream's ranks the first kMostRanks are remembered, and of as many streams
// as are not forgotten.
class Attempts {
 public:
  static constexpr size_t kMostRanks = 8;

  // What is to be added to every attempt that the process behind `hello` says. Changes nothing.
  uint32_t Ahead(const v1::Hello& hello) const;

  // A connected stream speaks for `sources`, whose attempts were raised by `ahead`. Again: what is
  // new of it is added.
  void Joined(uint64_t stream_id, const std::vector<v1::Source>& sources, uint32_t ahead);
  // One that a former server knew, with the attempts that were given then.
  void Restore(uint64_t stream_id, const std::vector<v1::Source>& sources);
  // Its connection is gone, or its process said that it ends.
  void Left(uint64_t stream_id);
  void Forget(uint64_t stream_id);

  // As if their process had said later attempts.
  static void Raise(uint32_t ahead, google::protobuf::RepeatedPtrField<v1::Source>* sources);

 private:
  struct Rank {
    uint64_t stream = 0;
    uint32_t attempt = 0;
  };
  struct Run {
    uint32_t latest = 0, world = 0;
    bool raised = false;                 // the latest was given, not said
    std::map<uint32_t, uint32_t> there;  // connected streams by attempt
    uint32_t streams = 0;                // known of it
  };
  struct Stream {
    std::map<std::string, uint32_t> ranks;  // the earliest attempt of each
    std::map<std::string, uint32_t> runs;   // the latest of each
    bool connected = false;
    std::optional<uint32_t> ahead;  // nothing: a former server knew
  };

  uint32_t GivenTo(const v1::Source& source) const;
  void Add(uint64_t stream_id, Stream* stream, const std::vector<v1::Source>& sources, bool raised);
  void Count(const Stream& stream, int change);

  template <typename V>
  using ByText = std::unordered_map<std::string, V, absl::Hash<std::string>>;
  std::unordered_map<uint64_t, Stream, absl::Hash<uint64_t>> streams_;
  ByText<Rank> ranks_;  // the latest that spoke for each, by RankKey
  ByText<Run> runs_;
};

}  // namespace plumbline::server
