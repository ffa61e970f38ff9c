// Removes segments that are too old or exceed the size limit, and records their content.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/journal/gap_table.h"
#include "server/journal/segments.h"

namespace plumbline::server {

struct JournalRetentionOptions {
  uint64_t keep_bytes = 0;          // of the whole journal; 0: no limit
  std::chrono::nanoseconds keep{};  // since receipt; 0: no limit
};

// Returns the content of a segment for each run and attempt: the number of evidence items and
// values of series, and their steps.
absl::StatusOr<v1::JournalGaps> Summarise(const std::string& directory, const Segment& segment,
                                          uint64_t last_entry, const std::string& reason);

// Not thread-safe.
class JournalRetention {
 public:
  // `gaps` must outlive it.
  JournalRetention(std::string directory, JournalRetentionOptions options, GapTable* gaps)
      : directory_(std::move(directory)), options_(options), gaps_(gaps) {}

  // Removes the segments that exceed the limits, the oldest first, if all their entries have
  // numbers up to `checkpoint_entry`. A segment is removed after its gap is recorded durably. Stops
  // at the first failure, which is logged. Returns the number of segments removed.
  int Apply(uint64_t checkpoint_entry, int64_t now_unix_ns);

 private:
  absl::Status Remove(const Segment& segment, uint64_t last_entry, const std::string& reason);

  const std::string directory_;
  const JournalRetentionOptions options_;
  GapTable* const gaps_;
};

}  // namespace plumbline::server
