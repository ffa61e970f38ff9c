// Records up to which number the batches of each stream were judged. A checkpoint stores this for a
// restart that finds the end of the journal gone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/stream/run_table.h"

namespace plumbline::server {

// Not thread-safe. Beyond `max_streams`, forgets the streams that were silent longest.
class StreamMarks {
 public:
  explicit StreamMarks(size_t max_streams) : max_streams_(max_streams) {}

  void Note(uint64_t stream_id, uint64_t sequence);

  // Returns a serialized v1::JournalStreams, the longest silent stream first, with the ranks of
  // each.
  std::string Encode(const std::vector<KnownRank>& ranks) const;
  // Restores the result of Encode. Returns false if it cannot be read.
  bool Restore(std::string_view payload);

 private:
  struct Mark {
    uint64_t sequence = 0;
    uint64_t age = 0;  // a larger one is newer
  };
  void ForgetTheOldest();

  const size_t max_streams_;
  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, Mark> marks_;
};

}  // namespace plumbline::server
