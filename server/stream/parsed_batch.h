// A batch as it travels inside the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "plumbline/v1/batch.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

struct ParsedBatch {
  // Shared by the steps that wait for more of it. Null only in a default-made one.
  std::shared_ptr<v1::Batch> batch;
  size_t bytes = 0;     // on the wire
  size_t held = 0;      // in memory, about, with its bytes on the wire; 0: not weighed
  uint64_t unsent = 0;  // batches of its stream that waited behind it
  WireBytes wire;       // of the batch alone, as it came; empty where nothing is kept
  // Not empty: the batch was refused, and stands here for its number alone.
  std::string refused;
  uint64_t refused_items = 0;

  // A parsed batch takes more than its bytes, the more the smaller its parts are: 200,000 batches
  // of eight values in 700 bytes took 2.4 GB.
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
