// Tracks the journal's state of each stream: the highest number held, the declared series sets, and
// its ranks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plumbline/v1/evidence.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

// The sets and ranks in a batch of a stream.
struct StreamFacts {
  std::vector<SetRecord> sets;
  std::vector<SourceRecord> sources;
};
// Reads them from the batch's wire bytes without parsing other fields. If the bytes are not a valid
// batch, returns what was found before the fault.
StreamFacts FactsOf(std::string_view batch_wire);

SourceRecord RecordOf(const v1::Source& source);

// Not thread-safe. Beyond `max_streams`, forgets the streams that were silent longest.
class StreamPositions {
 public:
  struct Stream {
    uint64_t sequence = 0;
    std::map<uint64_t, std::string> sets;  // SetRecord
    std::set<SourceRecord> sources;        // at most kMostSources
    uint64_t age = 0;                      // key in by_age()
  };

  // Limit per stream: the first ones suffice to identify it, and each segment begins with them.
  static constexpr size_t kMostSources = 8;

  explicit StreamPositions(size_t max_streams) : max_streams_(max_streams) {}

  void Note(uint64_t stream_id, uint64_t sequence, const std::vector<SetRecord>& sets,
            const std::vector<SourceRecord>& sources = {});

  // Returns payloads of kJournalStreams frames, each of at most about `frame_bytes`; none without
  // streams.
  std::vector<std::string> Encode(size_t frame_bytes) const;
  // Adds one such payload. Returns false if it cannot be read.
  bool Add(std::string_view payload);

  const std::unordered_map<uint64_t, Stream>& streams() const { return streams_; }
  // Returns the ids, the longest silent first.
  const std::map<uint64_t, uint64_t>& by_age() const { return by_age_; }

 private:
  size_t max_streams_;
  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, Stream> streams_;
  std::map<uint64_t, uint64_t> by_age_;
};

}  // namespace plumbline::server
