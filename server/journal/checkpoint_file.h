// What the judge knows at one entry of the journal, kept so that a restart need not judge all
// again.
//
// DATA/checkpoint/<entry, 20 digits>-<event, 20 digits>.plc is a framed log: kCheckpointHeader
// (v1::CheckpointHeader), then kCheckpointPart frames (a name, a zero byte, bytes; those of one
// name belong together), then kCheckpointEnd (the number of parts as text). A file gets its name
// when all of it is durable, and one without a kCheckpointEnd is none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

struct Checkpoint {
  uint64_t entry = 0;  // of the last batch judged
  uint64_t event = 0;  // of the last event applied
  int64_t unix_ns = 0;
  std::map<std::string, std::string> parts;
};

// The part that says up to which number each stream's batches were judged: a v1::JournalStreams.
inline constexpr char kCheckpointStreams[] = "streams";

struct CheckpointName {
  uint64_t entry = 0;
  uint64_t event = 0;
  std::string path;
};

// Writes it beside those that are there and removes all but the two newest. On failure the older
// ones are as they were.
absl::Status WriteCheckpoint(const std::string& directory, const std::string& tool_version,
                             const Checkpoint& checkpoint);

// The newest first. Files with other names are left out.
absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory);

// DataLoss or InvalidArgument with path and byte when it is not whole.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

}  // namespace plumbline::server
