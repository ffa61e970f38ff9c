// The state of the judge at one entry of the journal, so that a restart need not judge all entries
// again.
//
// DATA/checkpoint/<entry, 20 digits>-<event, 20 digits>.plc is a framed log: kCheckpointHeader
// (v1::CheckpointHeader), then kCheckpointPart frames (a name, a zero byte, bytes; frames
// with the same name form one part), then kCheckpointEnd (the number of parts as text). A file gets
// its name when all of it is durable. A file without kCheckpointEnd is ignored.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/framed_log.h"

namespace plumbline::server {

struct Checkpoint {
  uint64_t entry = 0;  // of the last batch judged
  uint64_t event = 0;  // of the last event applied
  int64_t unix_ns = 0;
  std::map<std::string, std::string> parts;
};

// Receives a checkpoint in pieces.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  virtual void Head(uint64_t entry, uint64_t event, int64_t unix_ns) = 0;  // first, once
  // More bytes of a part; the bytes of one part come in order.
  virtual void Part(std::string_view name, std::string_view bytes) = 0;
};

// The part with the number up to which each stream's batches were judged: a v1::JournalStreams.
inline constexpr char kCheckpointStreams[] = "streams";

struct CheckpointName {
  uint64_t entry = 0;
  uint64_t event = 0;
  std::string path;
};

// Writes a checkpoint next to the existing ones, piece by piece as it arrives. The checkpoint is
// valid after Finish has returned OK; Finish removes all checkpoints except the two newest. Without
// Finish, or on failure, the older checkpoints do not change. Not thread-safe; one at a time in a
// directory.
class CheckpointWriter : public CheckpointSink {
 public:
  CheckpointWriter(std::string directory, std::string tool_version);
  ~CheckpointWriter() override;  // removes an unfinished checkpoint
  void Head(uint64_t entry, uint64_t event, int64_t unix_ns) override;
  void Part(std::string_view name, std::string_view bytes) override;
  absl::Status Finish();

 private:
  void Append(FrameType type, std::string_view payload);
  absl::Status Name();

  const std::string directory_, tool_version_, temporary_;
  std::unique_ptr<FramedLogWriter> log_;
  absl::Status status_;
  uint64_t entry_ = 0, event_ = 0;
  size_t parts_ = 0;
  std::string part_;  // the newest
  bool finished_ = false;
};

absl::Status WriteCheckpoint(const std::string& directory, const std::string& tool_version,
                             const Checkpoint& checkpoint);

// Returns the newest first. Ignores files with other names.
absl::StatusOr<std::vector<CheckpointName>> ListCheckpoints(const std::string& directory);

// Returns DataLoss or InvalidArgument with path and byte if the file is not complete.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

}  // namespace plumbline::server
