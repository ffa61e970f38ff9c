#include "server/journal/journal_scan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

void TakeEvent(const StoredEntry& entry, JournalScan* scan) {
  StoredEvent stored;
  stored.number = entry.prefix.number;
  stored.unix_ns = entry.prefix.unix_ns;
  const std::string_view body = entry.body();
  if (stored.event.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    scan->events.push_back(std::move(stored));
  }
}

void Take(const StoredEntry& entry, uint64_t from, JournalScan* scan) {
  scan->bytes += entry.payload.size();
  if (entry.type == FrameType::kJournalEvent) {
    if (entry.prefix.number >= from) TakeEvent(entry, scan);
    return;
  }
  const StreamFacts facts =
      entry.type == FrameType::kJournalBatch ? FactsOf(entry.body()) : StreamFacts();
  scan->streams.Note(entry.prefix.stream_id, entry.prefix.sequence, facts.sets, facts.sources);
}

// Handles bytes after the last complete frame of the newest segment. An incomplete frame was never
// acknowledged and is cut off. Other damage counts as a loss of an unknown number of entries.
absl::Status EndScan(const JournalReader& reader, JournalScan* scan) {
  if (!reader.damaged_end().empty()) {
    scan->lost.push_back({reader.next(), reader.next(), reader.damaged_end()});
    scan->last = reader.next();
    return absl::OkStatus();
  }
  if (reader.whole_bytes() == 0) return absl::OkStatus();
  std::error_code error;
  const auto size = std::filesystem::file_size(reader.path(), error);
  if (!error && size > reader.whole_bytes()) {
    std::filesystem::resize_file(reader.path(), reader.whole_bytes(), error);
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(reader.path(), ": cannot cut off a torn tail: ", error.message()));
  }
  return absl::OkStatus();
}

}  // namespace

void InJudgedOrder(std::vector<StoredEvent>* events) {
  std::stable_sort(events->begin(), events->end(), [](const StoredEvent& a, const StoredEvent& b) {
    return a.event.after() < b.event.after();
  });
}

absl::StatusOr<JournalScan> ScanJournal(const std::string& directory, uint64_t from,
                                        size_t max_streams) {
  auto segments = ListSegments(directory);
  if (!segments.ok()) return segments.status();
  JournalScan scan(max_streams);
  if (segments->empty()) return scan;
  scan.oldest = segments->front().first;

  // Starts at the beginning of the segment that holds `from`, which lists the known streams.
  uint64_t start = scan.oldest;
  for (const Segment& segment : *segments) {
    if (segment.first <= from) start = segment.first;
  }
  auto reader = JournalReader::Open(directory, start);
  if (!reader.ok()) return reader.status();
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kEnd) break;
    if (result == JournalReader::Result::kLost) scan.lost.push_back((*reader)->lost());
    if (result == JournalReader::Result::kStreams) scan.streams.Add(entry.payload);
    if (result == JournalReader::Result::kEntry) Take(entry, from, &scan);
  }
  InJudgedOrder(&scan.events);
  scan.last = (*reader)->next() - 1;
  if (auto s = EndScan(**reader, &scan); !s.ok()) return s;
  return scan;
}

}  // namespace plumbline::server
