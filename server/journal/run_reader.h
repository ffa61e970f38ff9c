// What ReadRun needs of the journal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// One pass over what the journal holds of a run. Used by one thread at a time; holds no lock
// between calls, so that a slow reader never keeps the journal from going on.
class RunCursor {
 public:
  virtual ~RunCursor() = default;

  // What was true when the cursor was made. Everything but `tool_version` is filled in.
  virtual const v1::ReadRunHeader& header() const = 0;
  // The next item of the run, in judged order; before the first batch of a stream come the series
  // sets that it declared earlier (JudgeEvent.stream_sets). False: `newest_entry` was reached.
  // DataLoss names the path and byte of what cannot be read.
  virtual absl::StatusOr<bool> Next(v1::ReadRunItem* item) = 0;
};

// Thread-safe.
class RunReader {
 public:
  virtual ~RunReader() = default;
  // NotFound: the journal holds nothing of the run.
  virtual absl::StatusOr<std::unique_ptr<RunCursor>> Read(const std::string& run) = 0;
};

}  // namespace plumbline::server
