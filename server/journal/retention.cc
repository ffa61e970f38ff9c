#include "server/journal/retention.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/journal/journal_reader.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

uint64_t SizeOf(const Segment& segment) {
  std::error_code error;
  const auto size = std::filesystem::file_size(segment.path, error);
  return error ? 0 : size;
}

// Returns when the segment was begun; 0 if that is unknown.
int64_t CreatedAt(const Segment& segment) {
  auto log = FramedLogReader::Open(segment.path, JournalLogOptions());
  FrameType type;
  std::string payload;
  v1::JournalHeader header;
  if (!log.ok() || (*log)->Next(&type, &payload) != FramedLogReader::Result::kFrame ||
      type != FrameType::kJournalHeader || !header.ParseFromString(payload)) {
    return 0;
  }
  return header.created_unix_ns();
}

using ByRun = std::map<std::pair<std::string, uint32_t>, v1::Gap>;

void Count(const v1::Source& source, int64_t step, uint64_t items, ByRun* by_run) {
  v1::Gap& gap = (*by_run)[{source.run(), source.attempt()}];
  const bool first = gap.items() == 0;
  gap.set_step_first(first ? step : std::min(gap.step_first(), step));
  gap.set_step_last(first ? step : std::max(gap.step_last(), step));
  gap.set_items(gap.items() + items);
}

void Count(const v1::Batch& batch, ByRun* by_run) {
  const auto source = [&](uint32_t index) -> const v1::Source& {
    static const v1::Source none;
    return index < static_cast<uint32_t>(batch.sources_size())
               ? batch.sources(static_cast<int>(index))
               : none;
  };
  for (const v1::Evidence& e : batch.evidence()) Count(source(e.source()), e.step(), 1, by_run);
  for (const v1::SeriesRows& rows : batch.series()) {
    if (rows.step_size() == 0 || rows.source_size() == 0) continue;
    const auto columns = static_cast<uint64_t>(rows.value_size() / rows.step_size());
    for (int i = 0; i < rows.step_size(); ++i) {
      const uint32_t index = rows.source_size() == 1 ? rows.source(0) : rows.source(i);
      Count(source(index), rows.step(i), columns, by_run);
    }
  }
}

}  // namespace

absl::StatusOr<v1::JournalGaps> Summarise(const std::string& directory, const Segment& segment,
                                          uint64_t last_entry, const std::string& reason) {
  auto reader = JournalReader::Open(directory, segment.first, last_entry);
  if (!reader.ok()) return reader.status();
  ByRun by_run;
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kEnd) break;
    if (result != JournalReader::Result::kEntry || entry.type != FrameType::kJournalBatch) continue;
    v1::Batch batch;
    const std::string_view body = entry.body();
    if (batch.ParseFromArray(body.data(), static_cast<int>(body.size()))) Count(batch, &by_run);
  }
  v1::JournalGaps gaps;
  gaps.set_first_entry(segment.first);
  gaps.set_last_entry(last_entry);
  for (auto& [key, gap] : by_run) {
    gap.set_run(key.first);
    gap.set_attempt(key.second);
    gap.set_reason(reason);
    *gaps.add_gaps() = std::move(gap);
  }
  return gaps;
}

int JournalRetention::Apply(uint64_t checkpoint_entry, int64_t now_unix_ns) {
  if (options_.keep_bytes == 0 && options_.keep.count() == 0) return 0;
  auto segments = ListSegments(directory_);
  if (!segments.ok()) return 0;
  uint64_t total = 0;
  for (const Segment& segment : *segments) total += SizeOf(segment);
  int removed = 0;
  for (size_t i = 0; i + 1 < segments->size(); ++i) {
    const Segment& segment = (*segments)[i];
    const uint64_t last_entry = (*segments)[i + 1].first - 1;
    if (last_entry > checkpoint_entry) break;
    const bool too_much = options_.keep_bytes > 0 && total > options_.keep_bytes;
    // All its entries were received before the next segment was begun.
    const int64_t newest = CreatedAt((*segments)[i + 1]);
    const bool too_old =
        options_.keep.count() > 0 && newest > 0 && now_unix_ns - newest > options_.keep.count();
    if (!too_much && !too_old) break;
    const uint64_t size = SizeOf(segment);
    const absl::Status gone =
        Remove(segment, last_entry,
               too_old ? "retention: older than journal.keep_days"
                       : "retention: the journal was larger than journal.keep_bytes");
    if (!gone.ok()) {
      LogError("retention: {}", std::string(gone.message()));
      break;
    }
    total -= size;
    ++removed;
  }
  return removed;
}

absl::Status JournalRetention::Remove(const Segment& segment, uint64_t last_entry,
                                      const std::string& reason) {
  auto gaps = Summarise(directory_, segment, last_entry, reason);
  if (!gaps.ok()) return gaps.status();
  if (auto s = gaps_->Add(*gaps); !s.ok()) return s;
  std::error_code error;
  std::filesystem::remove(segment.path, error);
  if (error) return absl::UnavailableError(absl::StrCat(segment.path, ": ", error.message()));
  LogInfo("retention: entries {} to {} removed", segment.first, last_entry);
  return SyncDirectory(directory_);
}

}  // namespace plumbline::server
