// What the journal knows of each stream: the highest number it holds, and the series sets declared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/journal/entry.h"

namespace plumbline::server {

// The series sets of a batch, read from its wire bytes without parsing the rest. Bytes that are no
// batch give what was found before the fault.
std::vector<SetRecord> SetsOf(std::string_view batch_wire);

// Not thread-safe. Forgets the streams that were silent longest beyond `max_streams`.
class StreamBook {
 public:
  struct Stream {
    uint64_t sequence = 0;
    std::map<uint64_t, std::string> sets;  // SetRecord
    uint64_t age = 0;                      // key in by_age()
  };

  explicit StreamBook(size_t max_streams) : max_streams_(max_streams) {}

  void Note(uint64_t stream_id, uint64_t sequence, const std::vector<SetRecord>& sets);

  // Payloads of kJournalStreams frames, each of at most about `frame_bytes`; none without streams.
  std::vector<std::string> Encode(size_t frame_bytes) const;
  // Takes one such payload in. False when it cannot be read.
  bool Add(std::string_view payload);

  const std::unordered_map<uint64_t, Stream>& streams() const { return streams_; }
  // Ids, the longest silent first.
  const std::map<uint64_t, uint64_t>& by_age() const { return by_age_; }

 private:
  size_t max_streams_;
  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, Stream> streams_;
  std::map<uint64_t, uint64_t> by_age_;
};

}  // namespace plumbline::server
