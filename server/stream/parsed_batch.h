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
  uint64_t unsent = 0;  // batches of its stream that waited behind it
  WireBytes wire;       // of the batch alone, as it came; empty where nothing is kept
  // Not empty: the batch was refused, and stands here for its number alone.
  std::string refused;
  uint64_t refused_items = 0;
};

}  // namespace plumbline::server
