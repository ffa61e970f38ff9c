// Removes segments that are too old or too much, and notes what they held.
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

// What a segment holds of each run and attempt: evidence items and values of series, and their
// steps.
absl::StatusOr<v1::JournalGaps> Summarise(const std::string& directory, const Segment& segment,
                                          uint64_t last_entry, const std::string& reason);

// Not thread-safe.
class JournalRetention {
 public:
  // `gaps` must outlive it.
  JournalRetention(std::string directory, JournalRetentionOptions options, GapTable* gaps)
      : directory_(std::move(directory)), options_(options), gaps_(gaps) {}

  // Removes what the options allow to go among the segments all of whose entries have numbers up to
  // `checkpoint_entry`, the oldest first. A segment goes after its gap is noted durably; a failure
  // stops there and is logged. Returns the segments removed.
  int Apply(uint64_t checkpoint_entry, int64_t now_unix_ns);

 private:
  absl::Status Remove(const Segment& segment, uint64_t last_entry, const std::string& reason);

  const std::string directory_;
  const JournalRetentionOptions options_;
  GapTable* const gaps_;
};

}  // namespace plumbline::server
