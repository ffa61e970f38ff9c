// A parsed batch on its way through the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "plumbline/v1/batch.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

struct ParsedBatch {
  // Shared with the steps that wait for more evidence of it. Null only if default-constructed.
  std::shared_ptr<v1::Batch> batch;
  size_t bytes = 0;     // on the wire
  size_t held = 0;      // approximate bytes in memory, with its bytes on the wire; 0: not computed
  uint64_t unsent = 0;  // batches of its stream that waited to be sent after it
  WireBytes wire;       // only this batch, as received; empty if nothing is stored
  // If not empty, the batch was refused, and only its number is used.
  std::string refused;
  uint64_t refused_items = 0;

  // Computes `held`. A parsed batch takes more than its bytes, especially with small parts: 200,000
  // batches of eight values in 700 bytes took 2.4 GB.
  void Weigh();
  size_t weight() const { return held > 0 ? held : bytes; }
};

inline void ParsedBatch::Weigh() {
  constexpr size_t kBatch = 1024, kEvidence = 400, kEntry = 128;
  if (batch == nullptr) return;
  const auto entries =
      static_cast<size_t>(batch->sources_size()) + static_cast<size_t>(batch->progress_size()) +
      static_cast<size_t>(batch->losses_size()) + static_cast<size_t>(batch->declarations_size()) +
      static_cast<size_t>(batch->series_size());
  held =
      bytes + kBatch + kEvidence * static_cast<size_t>(batch->evidence_size()) + kEntry * entries;
}

}  // namespace plumbline::server
