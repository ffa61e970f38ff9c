// Reads the entries of a journal in order of their numbers, past damage, over segments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/framed_log.h"
#include "server/journal/entry.h"
#include "server/journal/packed_block.h"
#include "server/journal/segments.h"

namespace plumbline::server {

// Entries that should be there and are not.
struct LostEntries {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string where;  // "PATH: byte N: expected ..., found ...", or that a file is missing
};

// Not thread-safe. May read beside the writer: entries up to `to` must have been committed.
class JournalReader {
 public:
  enum class Result {
    kEntry,    // *entry
    kStreams,  // *entry, its payload a v1::JournalStreams: what the segment that begins here needs
    kLost,     // lost()
    kEnd,      // `to` was reached, or the last whole entry
  };
  static constexpr uint64_t kAll = ~uint64_t{0};

  // Entries `from` to `to`, both included, of `directory`.
  static absl::StatusOr<std::unique_ptr<JournalReader>> Open(const std::string& directory,
                                                             uint64_t from, uint64_t to = kAll);

  Result Next(StoredEntry* entry);
  const LostEntries& lost() const { return lost_; }

  // ---- of what was read so far ----
  // Number of the entry that Next expects.
  uint64_t next() const { return next_; }
  // After kEnd: what is wrong with the end of the last segment beyond a torn tail; empty: nothing.
  const std::string& damaged_end() const { return damage_; }
  // Of the last segment read: its path, and the bytes of it up to its last whole frame.
  const std::string& path() const { return path_; }
  uint64_t whole_bytes() const { return log_ == nullptr ? 0 : log_->offset(); }

 private:
  JournalReader(std::vector<Segment> segments, uint64_t from, uint64_t to)
      : segments_(std::move(segments)), next_(from), to_(to) {}

  bool OpenSegment();
  FramedLogReader::Result ReadFrame(StoredEntry* entry);
  bool TakeFromBlock(StoredEntry* entry);
  bool EndOfSegment(Result* result);
  bool TakeEntry(StoredEntry* entry, Result* result);
  uint64_t LimitOfSegment() const;
  Result Lose(uint64_t until);

  std::vector<Segment> segments_;
  size_t index_ = 0;  // of the segment to open next
  uint64_t next_;
  const uint64_t to_;
  std::unique_ptr<FramedLogReader> log_;
  std::string path_;
  std::string damage_;  // first damage since the last whole entry
  BlockReader block_;   // of the last kJournalPacked frame: what is left of it
  bool held_ = false;   // an entry was read ahead of a loss
  StoredEntry ahead_;
  LostEntries lost_;
};

}  // namespace plumbline::server
