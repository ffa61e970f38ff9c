// Up to which number the batches of each stream were judged: what a checkpoint must know of streams
// for a restart that finds the end of the journal gone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/stream/run_table.h"

namespace plumbline::server {

// Not thread-safe. Forgets streams that were silent longest, beyond `max_streams`.
class StreamMarks {
 public:
  explicit StreamMarks(size_t max_streams) : max_streams_(max_streams) {}

  void Note(uint64_t stream_id, uint64_t sequence);

  // A v1::JournalStreams, the longest silent first, with the ranks that each speaks for.
  std::string Encode(const std::vector<KnownRank>& ranks) const;
  // Takes up what Encode gave. False when it cannot be read.
  bool Restore(std::string_view payload);

 private:
  struct Mark {
    uint64_t sequence = 0;
    uint64_t age = 0;  // the larger, the younger
  };
  void ForgetTheOldest();

  const size_t max_streams_;
  uint64_t clock_ = 0;
  std::unordered_map<uint64_t, Mark> marks_;
};

}  // namespace plumbline::server
