#include "server/journal/journal_run_reader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "server/journal/journal_reader.h"
#include "server/journal/journal_scan.h"
#include "server/journal/stream_positions.h"

namespace plumbline::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Returns true if the batch has a source of `run`. Reads only the sources.
bool SpeaksOf(std::string_view batch_wire, const std::string& run) {
  constexpr uint32_t kSourcesTag = (v1::Batch::kSourcesFieldNumber << 3) | 2;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(batch_wire.data()),
                      static_cast<int>(batch_wire.size()));
  for (;;) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return false;
    if (tag != kSourcesTag) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    std::string bytes;
    v1::Source source;
    if (!WireFormatLite::ReadBytes(&in, &bytes) || !source.ParseFromString(bytes)) return false;
    if (source.run() == run) return true;
  }
}

// Reduces the event to the parts about `run`. If there are none, returns false.
bool Narrow(v1::JudgeEvent* event, const std::string& run) {
  if (ReportsAhead(*event)) return false;
  if (event->has_run_finished()) return event->run_finished().run() == run;
  if (event->has_hung()) return event->hung().run() == run;
  if (event->has_stopped()) return event->stopped().run() == run;
  if (event->has_steps_closed()) return event->steps_closed().run() == run;
  if (event->has_make_room()) return event->make_room().run() == run;
  if (event->has_ended()) return event->ended().run() == run;
  if (event->has_incident()) {  // other updates name no run and do not change a verdict
    const auto opened = analysis::QuarantineOpened(*event);
    return opened && opened->site().run() == run;
  }
  if (!event->has_ranks_gone()) return true;
  v1::RanksGone ours;
  ours.set_cause(event->ranks_gone().cause());
  const auto& unreachable = event->ranks_gone().unreachable();
  for (int i = 0, next = 0; i < event->ranks_gone().sources_size(); ++i) {
    const bool may_live =
        next < unreachable.size() && unreachable.Get(next) == static_cast<uint32_t>(i);
    if (may_live) ++next;
    v1::Source& source = *event->mutable_ranks_gone()->mutable_sources(i);
    if (source.run() != run) continue;
    if (may_live) ours.add_unreachable(static_cast<uint32_t>(ours.sources_size()));
    *ours.add_sources() = std::move(source);
  }
  *event->mutable_ranks_gone() = std::move(ours);
  return event->ranks_gone().sources_size() > 0;
}

class Cursor : public RunCursor {
 public:
  Cursor(std::string run, const RunReaderOptions& options, GapTable* gaps)
      : run_(std::move(run)), directory_(options.directory), gaps_(gaps) {
    header_.set_judged_entry(options.judged());
    header_.set_newest_entry(options.committed());
    header_.set_window_steps(options.window_steps);
    header_.set_run_bytes(options.run_bytes);
    header_.set_closes_reported(true);
    *header_.mutable_rules() = {options.rules.begin(), options.rules.end()};
    *header_.mutable_settings() = {options.settings.begin(), options.settings.end()};
  }

  // Finds the events. Returns NotFound if the journal has nothing of the run.
  absl::Status Start();

  const v1::ReadRunHeader& header() const override { return header_; }
  absl::StatusOr<bool> Next(v1::ReadRunItem* item) override;

 private:
  absl::Status FindEvents();
  absl::Status Rewind();
  void TakeBatch(StoredEntry& entry);
  void TakeStreams(std::string_view payload);
  void QueueEventsBefore(uint64_t entry);
  void QueueSets(uint64_t stream_id, uint64_t entry, const std::vector<SetRecord>& sets);
  absl::Status Lost(const LostEntries& lost, bool* known);
  absl::Status LostMeanwhile(const LostEntries& lost);

  const std::string run_;
  const std::string directory_;
  GapTable* const gaps_;
  v1::ReadRunHeader header_;
  std::unique_ptr<JournalReader> reader_;
  std::vector<StoredEvent> events_;
  size_t next_event_ = 0;
  bool found_ = false;
  bool ended_ = false;
  StreamPositions positions_{~size_t{0}};            // of streams whose sets were not passed on yet
  std::map<uint64_t, std::set<uint64_t>> reported_;  // sets that were passed on, by stream
  std::deque<v1::ReadRunItem> queue_;
};

absl::Status Cursor::Rewind() {
  auto reader = JournalReader::Open(directory_, 1, header_.newest_entry());
  if (!reader.ok()) return reader.status();
  reader_ = std::move(*reader);
  header_.set_oldest_entry(reader_->next());
  return absl::OkStatus();
}

absl::Status Cursor::Start() {
  if (auto s = FindEvents(); !s.ok()) return s;
  for (v1::Gap& gap : gaps_->Of(run_)) {
    found_ |= gap.run() == run_;
    *header_.add_gaps() = std::move(gap);
  }
  if (!found_) return absl::NotFoundError(absl::StrCat("the journal contains nothing of ", run_));
  return Rewind();
}

absl::Status Cursor::FindEvents() {
  if (auto s = Rewind(); !s.ok()) return s;
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = reader_->Next(&entry);
    if (result == JournalReader::Result::kEnd) {
      InJudgedOrder(&events_);
      return absl::OkStatus();
    }
    if (result == JournalReader::Result::kLost) {
      bool known = true;  // the header will list it, even if it was known before
      if (auto s = Lost(reader_->lost(), &known); !s.ok()) return s;
    }
    if (result != JournalReader::Result::kEntry) continue;
    if (entry.type == FrameType::kJournalBatch) {
      found_ = found_ || SpeaksOf(entry.body(), run_);
    }
    if (entry.type != FrameType::kJournalEvent) continue;
    StoredEvent stored{entry.prefix.number, entry.prefix.unix_ns, {}};
    const std::string_view body = entry.body();
    if (stored.event.ParseFromArray(body.data(), static_cast<int>(body.size())) &&
        Narrow(stored.event.mutable_event(), run_)) {
      events_.push_back(std::move(stored));
    }
  }
}

// Records damage, which may be skipped only after that.
absl::Status Cursor::Lost(const LostEntries& lost, bool* known) {
  auto segments = ListSegments(directory_);
  if (segments.ok() && !segments->empty() && lost.last < segments->front().first) {
    return absl::AbortedError("retention removed the data during the read; try again");
  }
  return gaps_->AddLost(lost, known);
}

// Handles damage found after the header was sent, which does not list it.
absl::Status Cursor::LostMeanwhile(const LostEntries& lost) {
  bool known = true;
  if (auto s = Lost(lost, &known); !s.ok() || known) return s;
  return absl::DataLossError(absl::StrCat(lost.where, "; entries ", lost.first, " to ", lost.last));
}

absl::StatusOr<bool> Cursor::Next(v1::ReadRunItem* item) {
  while (queue_.empty()) {
    if (ended_) return false;
    StoredEntry entry;
    switch (reader_->Next(&entry)) {
      case JournalReader::Result::kEnd:
        QueueEventsBefore(JournalReader::kAll);
        ended_ = true;
        break;
      case JournalReader::Result::kLost:
        if (auto s = LostMeanwhile(reader_->lost()); !s.ok()) return s;
        break;
      case JournalReader::Result::kStreams:
        TakeStreams(entry.payload);
        break;
      case JournalReader::Result::kEntry:
        if (entry.type == FrameType::kJournalBatch) TakeBatch(entry);
        break;
    }
  }
  *item = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Cursor::QueueEventsBefore(uint64_t entry) {
  for (; next_event_ < events_.size() && events_[next_event_].event.after() < entry;
       ++next_event_) {
    v1::ReadRunItem& item = queue_.emplace_back();
    item.set_entry(events_[next_event_].number);
    *item.mutable_event() = events_[next_event_].event.event();
  }
}

void Cursor::QueueSets(uint64_t stream_id, uint64_t entry, const std::vector<SetRecord>& sets) {
  std::set<uint64_t>& reported = reported_[stream_id];
  v1::Batch fresh;
  for (const auto& [id, record] : sets) {
    if (reported.insert(id).second) fresh.MergeFromString(record);
  }
  if (fresh.series_sets_size() == 0) return;
  v1::ReadRunItem& item = queue_.emplace_back();
  item.set_entry(entry);
  v1::StreamSets& event = *item.mutable_event()->mutable_stream_sets();
  event.set_stream_id(stream_id);
  *event.mutable_sets() = std::move(*fresh.mutable_series_sets());
}

void Cursor::TakeStreams(std::string_view payload) {
  StreamPositions streams(~size_t{0});
  streams.Add(payload);
  for (const auto& [id, stream] : streams.streams()) {
    const std::vector<SetRecord> sets(stream.sets.begin(), stream.sets.end());
    if (reported_.contains(id)) {
      QueueSets(id, reader_->next(), sets);
    } else {
      positions_.Note(id, stream.sequence, sets);
    }
  }
}

void Cursor::TakeBatch(StoredEntry& entry) {
  const uint64_t stream = entry.prefix.stream_id;
  const uint64_t number = entry.prefix.number;
  const std::vector<SetRecord> sets = FactsOf(entry.body()).sets;
  if (entry.prefix.sequence == 0 || !SpeaksOf(entry.body(), run_)) {
    if (reported_.contains(stream)) {
      QueueSets(stream, number, sets);
    } else if (!sets.empty()) {
      positions_.Note(stream, 0, sets);
    }
    return;
  }
  QueueEventsBefore(number);
  if (!reported_.contains(stream)) {
    const auto known = positions_.streams().find(stream);
    QueueSets(stream, number,
              known == positions_.streams().end()
                  ? std::vector<SetRecord>()
                  : std::vector<SetRecord>(known->second.sets.begin(), known->second.sets.end()));
  }
  for (const auto& [id, record] : sets) reported_[stream].insert(id);
  v1::ReadRunItem& item = queue_.emplace_back();
  item.set_entry(number);
  item.set_batch(entry.payload.substr(EntryPrefix::kSize));
}

class JournalRunReader : public RunReader {
 public:
  JournalRunReader(RunReaderOptions options, GapTable* gaps)
      : options_(std::move(options)), gaps_(gaps) {}

  absl::StatusOr<std::unique_ptr<RunCursor>> Read(const std::string& run) override {
    auto cursor = std::make_unique<Cursor>(run, options_, gaps_);
    if (auto s = cursor->Start(); !s.ok()) return s;
    return std::unique_ptr<RunCursor>(std::move(cursor));
  }

 private:
  const RunReaderOptions options_;
  GapTable* const gaps_;
};

}  // namespace

std::unique_ptr<RunReader> MakeRunReader(RunReaderOptions options, GapTable* gaps) {
  return std::make_unique<JournalRunReader>(std::move(options), gaps);
}

}  // namespace plumbline::server
