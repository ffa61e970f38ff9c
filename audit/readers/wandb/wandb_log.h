// Reads the framing of .wandb files and SwanLab's files. It is that of LevelDB's log (blocks of 32
// KiB from the file's start, records in chunks), with zlib's CRC-32 over a chunk's type and data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/block_reader.h"

namespace plumbline::audit {

// Not thread-safe. Adds problems to the report.
class WandbLog {
 public:
  WandbLog(std::unique_ptr<BlockReader> in, InputReport* report)
      : WandbLog(std::move(in), report, Head(), "a W&B run of version 0") {}
  // Reads the same framing after the head of another tool's file. `head` and `what` must outlive
  // the log.
  WandbLog(std::unique_ptr<BlockReader> in, InputReport* report, std::string_view head,
           std::string_view what)
      : in_(std::move(in)), report_(report), head_(head), what_(what) {}

  // Reads the next record, valid until the next call. Returns false if there is no whole record now
  // (the file may grow), or if the file was read up to a damaged place.
  bool Next(std::string_view* record);
  // Ends the file. Reports an unfinished record.
  void Close();

  uint64_t offset() const { return in_->offset(); }
  // Returns the offset of the record that Next read last.
  uint64_t record_at() const { return record_at_; }
  uint64_t bytes_read() const { return in_->stream().file_bytes_read(); }

  // Returns true if a .wandb file begins with these bytes.
  static bool Recognise(std::string_view head);

 private:
  static std::string_view Head();

  enum class Kind : uint8_t { kZero = 0, kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
  struct Chunk {
    Kind kind = Kind::kZero;
    std::string_view data;
  };
  bool ReadHead();
  // Returns false if there is no whole chunk, or if it is damaged.
  bool NextChunk(Chunk* chunk);
  void Damaged(uint64_t offset, std::string text);

  std::unique_ptr<BlockReader> in_;
  InputReport* report_;
  std::string_view head_, what_;  // the file's first bytes, and their name for messages
  bool began_ = false;            // the head was read
  bool damaged_ = false;          // the file is damaged, so no more is read
  bool within_ = false;           // a record has begun but not ended
  uint64_t record_at_ = 0;
  std::string record_;  // a record of several chunks
};

}  // namespace plumbline::audit
