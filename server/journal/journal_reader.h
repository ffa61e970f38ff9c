// Reads the entries of a journal in order of their numbers, across segments; skips damage.
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

// Entries that are missing or damaged.
struct LostEntries {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string where;  // "PATH: byte N: expected ..., found ...", or that a file is missing
};

// Not thread-safe. The writer may append at the same time, if entries up to `to` are committed.
class JournalReader {
 public:
  enum class Result {
    kEntry,    // *entry
    kStreams,  // *entry, its payload a v1::JournalStreams: the streams at the beginning of a
               // segment
    kLost,     // lost()
    kEnd,      // `to` was reached, or the last complete entry
  };
  static constexpr uint64_t kAll = ~uint64_t{0};

  // Opens entries `from` to `to`, both included, of `directory`.
  static absl::StatusOr<std::unique_ptr<JournalReader>> Open(const std::string& directory,
                                                             uint64_t from, uint64_t to = kAll);

  Result Next(StoredEntry* entry);
  const LostEntries& lost() const { return lost_; }

  // ---- state of the reading ----
  // Returns the number of the entry that Next expects.
  uint64_t next() const { return next_; }
  // After kEnd: returns the damage after the last complete frame; empty if there is none, or only a
  // torn tail.
  const std::string& damaged_end() const { return damage_; }
  // Return the path of the last segment read, and its bytes up to its last complete frame.
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
  std::string damage_;  // first damage since the last complete entry
  BlockReader block_;   // the unread part of the last kJournalPacked frame
  bool held_ = false;   // an entry after the loss was already read
  StoredEntry ahead_;
  LostEntries lost_;
};

}  // namespace plumbline::server
