// A batch as it travels inside the server.
#pragma once

#include <cstddef>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::server {

struct ParsedBatch {
  v1::Batch batch;
  size_t bytes = 0;  // on the wire
};

}  // namespace plumbline::server
