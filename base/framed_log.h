// The one framed log: run records, the agent's spool and the server's journal are all this.
//
// A file is a 16-byte header, then frames. Each frame carries its length, a type, the CRC-32C of
// header and payload, and a payload that is raw or one zstd frame. Appending writes whole frames
// with one write(2), so a file is readable while it grows and, after a crash, up to its last
// whole frame. The layout is spelled out in framed_log_format.h.
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

// What a frame holds. Stored: never renumber.
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

// A frame whose payload lies in pieces. The views must hold during the call alone.
struct FrameToAppend {
  FrameType type;
  std::span<const std::string_view> parts;
  bool may_compress = true;  // where the writer's options ask for it
};

struct FramedLogOptions {
  bool compress = true;              // zstd level 1 for payloads of 256 bytes and more
  uint64_t max_payload = 64u << 20;  // bytes before compression; checked on both sides
};

// Appends frames to one file. Not thread-safe. Nothing is buffered in the process: after Append
// returns OK the frame is with the kernel and survives the death of the process (not of the host,
// unless Sync is called).
class FramedLogWriter {
 public:
  // Creates the file, or opens it to append after its last whole frame (a torn tail is cut off).
  // InvalidArgument when it is another kind of file, DataLoss when a frame is damaged (the file is
  // left alone: set it aside). One writer a file at a time: the caller sees to that.
  static absl::StatusOr<std::unique_ptr<FramedLogWriter>> Open(const std::string& path,
                                                               FramedLogOptions options = {});
  virtual ~FramedLogWriter() = default;
  // On failure (a full disk, say) the file is cut back to its last whole frame, the system's error
  // is returned, and a later Append may succeed. InvalidArgument beyond max_payload.
  virtual absl::Status Append(FrameType type, std::string_view payload) = 0;
  // All of them with one write, or none: as Append.
  virtual absl::Status AppendAll(std::span<const FrameToAppend> frames) = 0;
  // Returns when all that was appended is with the storage.
  virtual absl::Status Sync() = 0;
  virtual uint64_t size_bytes() const = 0;  // of the file, headers included
};

// The bytes of a file with these frames, none of them compressed, for who sends it instead of
// keeping it. Each payload has fewer than 4 GiB. Thread-safe.
std::string FramedLogBytes(std::span<const std::pair<FrameType, std::string_view>> frames);

// Reads frames in order. Not thread-safe.
class FramedLogReader {
 public:
  enum class Result {
    kFrame,     // *type and *payload are set
    kEnd,       // clean end of file
    kTornTail,  // an unfinished last frame: the file may still be written. Not damage
    kDamaged,   // error() says what, where and what was expected; reading stops
  };
  // InvalidArgument when the file is not a framed log; NotFound and others from the system.
  static absl::StatusOr<std::unique_ptr<FramedLogReader>> Open(const std::string& path,
                                                               FramedLogOptions options = {});
  // True when the first bytes of a file (8 suffice) are a framed log's.
  static bool Recognise(std::string_view first_bytes);
  // The type of the first frame, where the bytes (36 suffice) hold its header undamaged.
  static std::optional<FrameType> FirstType(std::string_view first_bytes);

  virtual ~FramedLogReader() = default;
  // After kEnd and kTornTail, calling again tries the same place again (the writer may have gone
  // on). After kDamaged nothing but Resume helps. Types that this version does not know are
  // returned as they are.
  virtual Result Next(FrameType* type, std::string* payload) = 0;
  // Next for who wants the place and not the payload: checked, not decompressed.
  virtual Result Skip(FrameType* type) = 0;
  // After kDamaged: goes to the next whole frame behind the damage, found by its two checksums.
  // False when there is none, or when the file's own header is damaged. What lay between is lost.
  virtual bool Resume() = 0;
  // After kTornTail or kDamaged: "byte N: expected ..., found ...".
  virtual const std::string& error() const = 0;
  virtual uint64_t offset() const = 0;  // of the next frame
};

}  // namespace plumbline
