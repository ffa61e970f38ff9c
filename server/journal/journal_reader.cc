#include "server/journal/journal_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {

using Read = FramedLogReader::Result;

absl::StatusOr<std::unique_ptr<JournalReader>> JournalReader::Open(const std::string& directory,
                                                                   uint64_t from, uint64_t to) {
  auto segments = ListSegments(directory);
  if (!segments.ok()) return segments.status();
  from = std::max<uint64_t>(from, 1);
  // Segments that end before `from` are not opened. Entries that retention removed are not a loss
  // here.
  auto& list = *segments;
  while (list.size() >= 2 && list[1].first <= from) list.erase(list.begin());
  if (!list.empty()) from = std::max(from, list.front().first);
  return std::unique_ptr<JournalReader>(new JournalReader(std::move(list), from, to));
}

JournalReader::Result JournalReader::Next(StoredEntry* entry) {
  for (;;) {
    if (held_) {
      held_ = false;
      *entry = std::move(ahead_);
      next_ = entry->prefix.number + 1;
      return Result::kEntry;
    }
    if (next_ > to_) return Result::kEnd;
    Result result = Result::kEnd;
    if (log_ == nullptr && !OpenSegment()) {
      if (index_ >= segments_.size()) return Result::kEnd;
      continue;
    }
    switch (ReadFrame(entry)) {
      case Read::kFrame:
        if (entry->type == FrameType::kJournalStreams) return Result::kStreams;
        if (IsEntry(entry->type) && TakeEntry(entry, &result)) return result;
        break;
      case Read::kDamaged:
        if (damage_.empty()) damage_ = absl::StrCat(path_, ": ", log_->error());
        if (log_->Resume()) break;
        [[fallthrough]];
      case Read::kEnd:
      case Read::kTornTail:
        if (EndOfSegment(&result)) return result;
        break;
    }
  }
}

// Reads the next frame, or the next one of a packed block. If the contents of a block are damaged
// although its frame is whole, reading continues after it.
Read JournalReader::ReadFrame(StoredEntry* entry) {
  for (;;) {
    if (TakeFromBlock(entry)) return Read::kFrame;
    const uint64_t at = log_->offset();
    const Read result = log_->Next(&entry->type, &entry->payload);
    if (result != Read::kFrame || entry->type != FrameType::kJournalPacked) return result;
    std::string why;
    if (!block_.Open(entry->payload, &why) && damage_.empty()) {
      damage_ = absl::StrCat(path_, ": byte ", at, ": ", why);
    }
  }
}

bool JournalReader::TakeFromBlock(StoredEntry* entry) {
  std::string_view payload;
  if (!block_.Next(&entry->type, &payload)) return false;
  entry->payload.assign(payload);
  return true;
}

// Opens segments_[index_]. If that fails, returns false and skips the segment.
bool JournalReader::OpenSegment() {
  if (index_ >= segments_.size()) return false;
  path_ = segments_[index_++].path;
  auto log = FramedLogReader::Open(path_, JournalLogOptions());
  if (log.ok()) {
    log_ = std::move(*log);
    return true;
  }
  if (damage_.empty()) damage_ = std::string(log.status().message());
  return false;
}

// Returns the first entry number that belongs to the next segment.
uint64_t JournalReader::LimitOfSegment() const {
  return index_ < segments_.size() ? segments_[index_].first : kAll;
}

// Returns true if `result` must be returned. The last segment stays open, because a writer may
// append to it.
bool JournalReader::EndOfSegment(Result* result) {
  if (index_ >= segments_.size()) {
    *result = Result::kEnd;
    return true;
  }
  const uint64_t first = segments_[index_].first;
  log_.reset();
  if (next_ >= first) {
    damage_.clear();  // another segment has all entries that were damaged
    return false;
  }
  *result = Lose(std::min(first - 1, to_));
  return true;
}

// Returns true if `result` must be returned; false if the entry is skipped.
bool JournalReader::TakeEntry(StoredEntry* entry, Result* result) {
  if (!EntryPrefix::Decode(entry->payload, &entry->prefix)) return false;
  const uint64_t number = entry->prefix.number;
  if (number < next_ || number >= LimitOfSegment()) return false;
  if (number > next_) {
    if (number <= to_) {
      ahead_ = std::move(*entry);
      held_ = true;
    }
    *result = Lose(std::min(number - 1, to_));
    return true;
  }
  damage_.clear();
  next_ = number + 1;
  *result = Result::kEntry;
  return true;
}

JournalReader::Result JournalReader::Lose(uint64_t until) {
  lost_.first = next_;
  lost_.last = until;
  lost_.where = damage_.empty()
                    ? absl::StrCat(path_, ": entries ", next_, " to ", until, " are missing")
                    : damage_;
  damage_.clear();
  next_ = until + 1;
  return Result::kLost;
}

}  // namespace plumbline::server
