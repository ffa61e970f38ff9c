// Puts the batches of one stream into order and passes each on once, even if they arrive repeatedly
// and in any order. Uses no threads and no clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "server/stream/parsed_batch.h"
#include "server/stream/shared_bytes.h"

namespace plumbline::server {

// Not thread-safe.
class Sequencer {
 public:
  struct Limits {
    size_t waiting_batches = 64;
    size_t waiting_bytes = 16u << 20;
    std::shared_ptr<SharedBytes> of_all = nullptr;  // memory shared by all streams; null: no limit
  };
  enum class Offer {
    kInOrder,    // this batch, and the batches that it released, are in the output
    kWaits,      // held until the gap before it closes
    kDuplicate,  // held already: dropped
    kOverflow,   // neither taken nor acknowledged: too much waits for one gap
  };

  // Everything up to `contiguous` was passed on before.
  explicit Sequencer(Limits limits, uint64_t contiguous = 0)
      : limits_(std::move(limits)), contiguous_(contiguous), bytes_(limits_.of_all, "") {}

  // Takes a batch. A refused batch takes its place like any other.
  Offer Take(uint64_t sequence, ParsedBatch batch, std::vector<ParsedBatch>* ready);

  // Skips to `next`: the sender will never send lower numbers. Returns how many were skipped.
  uint64_t SkipTo(uint64_t next, std::vector<ParsedBatch>* ready);

  // Returns the number up to which everything was passed on; 0: nothing yet.
  uint64_t contiguous() const { return contiguous_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  void Release(std::vector<ParsedBatch>* ready);

  Limits limits_;
  uint64_t contiguous_;
  SharedBytes::Held bytes_;  // of the waiting batches
  std::map<uint64_t, ParsedBatch> waiting_;
};

}  // namespace plumbline::server
