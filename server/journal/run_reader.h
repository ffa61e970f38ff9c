// The interface of the journal for ReadRun.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// One pass over the journal's items of a run. Used by one thread at a time. Holds no lock between
// calls, so that a slow reader never blocks the journal.
class RunCursor {
 public:
  virtual ~RunCursor() = default;

  // Returns the header as of when the cursor was made, with every field but `tool_version`.
  virtual const v1::ReadRunHeader& header() const = 0;
  // Reads the next item of the run, in judged order. Before the first batch of a stream come the
  // series sets that it declared earlier (JudgeEvent.stream_sets). Returns false once
  // `newest_entry` was reached. DataLoss names the path and byte of what cannot be read.
  virtual absl::StatusOr<bool> Next(v1::ReadRunItem* item) = 0;
};

// Thread-safe.
class RunReader {
 public:
  virtual ~RunReader() = default;
  // Returns NotFound if the journal holds nothing of the run.
  virtual absl::StatusOr<std::unique_ptr<RunCursor>> Read(const std::string& run) = 0;
};

}  // namespace plumbline::server
