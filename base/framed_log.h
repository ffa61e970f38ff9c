// The framed log: the file format of run records, the agent's spool and the server's journal.
//
// A file is a 16-byte header, then frames. Each frame has its length, a type, the CRC-32C of header
// and payload, and a payload that is raw or one zstd frame. Appending writes whole frames with one
// write(2). Therefore a file is readable while it grows and, after a crash, up to its last whole
// frame. framed_log_format.h describes the layout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

// The content of a frame. Stored: never renumber.
enum class FrameType : uint8_t {
  kRecordHeader = 1,  // v1::RecordHeader
  kBatch = 2,         // v1::Batch
  kSpoolHeader = 3,   // v1::SpoolHeader
  // The server's journal (server/journal/entry.h).
  kJournalHeader = 16,
  kJournalStreams = 17,
  kJournalBatch = 18,
  kJournalSkip = 19,
  kJournalEvent = 20,
  kJournalGaps = 21,
  kJournalPacked = 22,  // server/journal/packed_block.h
  // The server's checkpoints (server/journal/checkpoint_file.h).
  kCheckpointHeader = 24,
  kCheckpointPart = 25,
  kCheckpointEnd = 26,
};

// A frame whose payload is in pieces. The views must be valid during the call only.
struct FrameToAppend {
  FrameType type;
  std::span<const std::string_view> parts;
  bool may_compress = true;  // if the writer's options request it
};

struct FramedLogOptions {
  bool compress = true;              // zstd level 1 for payloads of 256 bytes and more
  uint64_t max_payload = 64u << 20;  // bytes before compression; checked on both sides
};

// Appends frames to one file. Not thread-safe. Nothing is buffered in the process: after Append
// returns OK, the kernel has the frame. The frame survives the death of the process, and after Sync
// also a crash of the host.
class FramedLogWriter {
 public:
  // Creates the file, or opens it to append after its last whole frame (an unfinished tail is cut
  // off). Returns InvalidArgument if it is another kind of file, and DataLoss if a frame is damaged
  // (the file is not changed: set it aside). The caller ensures that a file has one writer at a
  // time.
  static absl::StatusOr<std::unique_ptr<FramedLogWriter>> Open(const std::string& path,
                                                               FramedLogOptions options = {});
  virtual ~FramedLogWriter() = default;
  // Appends one frame. On failure (for example a full disk) the file is cut back to its last whole
  // frame, the system's error is returned, and a later Append may succeed. Returns InvalidArgument
  // beyond max_payload.
  virtual absl::Status Append(FrameType type, std::string_view payload) = 0;
  // Appends all frames with one write, or none, like Append.
  virtual absl::Status AppendAll(std::span<const FrameToAppend> frames) = 0;
  // Returns when everything that was appended is on the storage.
  virtual absl::Status Sync() = 0;
  virtual uint64_t size_bytes() const = 0;  // of the file, headers included
};

// Returns the bytes of a file with these frames, uncompressed, for callers that send it instead of
// storing it. Each payload has fewer than 4 GiB. Thread-safe.
std::string FramedLogBytes(std::span<const std::pair<FrameType, std::string_view>> frames);

// Reads frames in order. Not thread-safe.
class FramedLogReader {
 public:
  enum class Result {
    kFrame,     // *type and *payload are set
    kEnd,       // clean end of file
    kTornTail,  // an unfinished last frame: the file may still be written. No damage
    kDamaged,   // error() states the place, what was found and what was expected; reading stops
  };
  // Opens a file. Returns InvalidArgument if it is no framed log; NotFound and others from the
  // system.
  static absl::StatusOr<std::unique_ptr<FramedLogReader>> Open(const std::string& path,
                                                               FramedLogOptions options = {});
  // Returns true if the first bytes of a file (8 suffice) are those of a framed log.
  static bool Recognise(std::string_view first_bytes);
  // Returns the type of the first frame, if the bytes (36 suffice) contain its header undamaged.
  static std::optional<FrameType> FirstType(std::string_view first_bytes);

  virtual ~FramedLogReader() = default;
  // Reads the next frame. After kEnd and kTornTail, calling again tries the same place again (the
  // writer may have continued). After kDamaged only Resume helps. Frames of a type that this
  // version does not know are returned unchanged.
  virtual Result Next(FrameType* type, std::string* payload) = 0;
  // Reads the next frame without its payload: checks it, but does not decompress it.
  virtual Result Skip(FrameType* type) = 0;
  // After kDamaged: goes to the next whole frame after the damage, found by its two checksums.
  // Returns false if there is none, or if the file's own header is damaged. The bytes in between
  // are lost.
  virtual bool Resume() = 0;
  // Returns "byte N: expected ..., found ..." after kTornTail or kDamaged.
  virtual const std::string& error() const = 0;
  virtual uint64_t offset() const = 0;  // of the next frame
};

}  // namespace plumbline
