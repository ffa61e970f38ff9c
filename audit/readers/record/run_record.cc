#include "audit/readers/record/run_record.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "audit/readers/input/file.h"
#include "base/framed_log.h"
#include "rules/engine/series.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kSchema = "plumbline.record/1";

// Stream -> newest sequence number that was read, over all files. Used to skip copies of a record.
using Streams = std::map<uint64_t, uint64_t>;

// Splits the framed log's "byte N: expected ..." into offset and text.
Problem FromLog(const FramedLogReader& log, bool error) {
  std::string_view text = log.error();
  Problem problem{log.offset(), std::string(text), error};
  constexpr std::string_view kByte = "byte ";
  if (!text.starts_with(kByte)) return problem;
  text.remove_prefix(kByte.size());
  uint64_t offset = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), offset);
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  if (parsed.ec != std::errc() || !text.starts_with(": ")) return problem;
  return {offset, std::string(text.substr(2)), error};
}

class RecordSource : public Source {
 public:
  RecordSource(std::unique_ptr<FramedLogReader> log, InputReport* report,
               std::shared_ptr<Streams> streams)
      : log_(std::move(log)), report_(report), streams_(std::move(streams)) {}

  // Reads the record's first frame. If there is none, adds the reason to the report and returns
  // false.
  bool ReadHeader() {
    FrameType type{};
    std::string payload;
    if (!NextFrame(&type, &payload)) {
      if (report_->problems.empty())
        report_->Add(frame_at_, "expected a record header, found the end of the file", false);
      return false;
    }
    v1::RecordHeader header;
    if (type != FrameType::kRecordHeader || !header.ParseFromString(payload)) {
      report_->Add(frame_at_, "expected a record header, found frame type " +
                                  std::to_string(static_cast<int>(type)));
      return false;
    }
    if (header.schema() != kSchema) {
      report_->Add(frame_at_, "expected schema " + std::string(kSchema) + ", found " +
                                  Quoted(header.schema()));
      return false;
    }
    process_ = header.source();
    position_ = {process_.run(), process_.attempt(), INT64_MIN};
    report_->runs.insert(process_.run());
    return true;
  }

  Position position() const override { return position_; }

  bool Next(v1::Batch* batch) override {
    FrameType type{};
    std::string payload;
    while (NextFrame(&type, &payload)) {
      if (type != FrameType::kBatch) {
        report_->Add(frame_at_, "expected a batch, found frame type " +
                                    std::to_string(static_cast<int>(type)));
      } else if (!batch->ParseFromString(payload)) {
        report_->Add(frame_at_, "expected a batch of evidence, found other bytes");
      } else if (IsNew(*batch)) {
        report_->records += static_cast<uint64_t>(batch->evidence_size());
        for (const v1::SeriesRows& rows : batch->series())
          report_->records += rules::CountPresent(rows);
        Advance(*batch);
        return true;
      }
    }
    if (repeated_ > 0) {
      report_->Add(0,
                   "expected batches that are only in this file, found " +
                       std::to_string(repeated_) + " that another file also contains",
                   false);
      repeated_ = 0;
    }
    return false;
  }

  void Refused(const absl::Status& why) override {
    report_->Add(frame_at_,
                 "expected a batch that is consistent, found " + std::string(why.message()));
  }

  uint64_t bytes_read() const override { return log_->offset(); }
  size_t files_done() const override { return ended_ ? 1 : 0; }
  std::vector<v1::Source> processes() const override { return {process_}; }

 private:
  bool NextFrame(FrameType* type, std::string* payload) {
    frame_at_ = log_->offset();
    const FramedLogReader::Result result =
        ended_ ? FramedLogReader::Result::kEnd : log_->Next(type, payload);
    if (result == FramedLogReader::Result::kFrame) return true;
    ended_ = true;
    if (result != FramedLogReader::Result::kEnd) {
      Problem problem = FromLog(*log_, result == FramedLogReader::Result::kDamaged);
      report_->Add(problem.offset, std::move(problem.text), problem.error);
    }
    return false;
  }

  bool IsNew(const v1::Batch& batch) {
    if (batch.stream_id() == 0) return true;
    uint64_t& newest = (*streams_)[batch.stream_id()];
    if (batch.sequence() <= newest) {
      ++repeated_;
      return false;
    }
    newest = batch.sequence();
    return true;
  }

  void Advance(const v1::Batch& batch) {
    for (const v1::Progress& progress : batch.progress()) {
      if (progress.any_step())
        position_.step = std::max(position_.step, progress.complete_through());
    }
  }

  std::unique_ptr<FramedLogReader> log_;
  InputReport* report_;
  std::shared_ptr<Streams> streams_;
  v1::Source process_;
  Position position_;
  uint64_t frame_at_ = 0;
  uint64_t repeated_ = 0;
  bool ended_ = false;
};

}  // namespace

// Refuses spools, which are in a record's directory, and journals. They are also framed logs, but
// plumb spool and plumbd read them.
bool RunRecordReader::Recognise(std::string_view, std::string_view head) const {
  if (!FramedLogReader::Recognise(head)) return false;
  const auto type = FramedLogReader::FirstType(head);
  return type != FrameType::kSpoolHeader && type != FrameType::kJournalHeader &&
         type != FrameType::kCheckpointHeader;
}

std::vector<std::unique_ptr<Source>> RunRecordReader::Open(
    const std::vector<InputReport*>& files) const {
  const auto streams = std::make_shared<Streams>();
  std::vector<std::unique_ptr<Source>> sources;
  for (InputReport* report : files) {
    absl::StatusOr<std::unique_ptr<FramedLogReader>> log = FramedLogReader::Open(report->path);
    if (!log.ok()) {
      report->Add(0, "expected a run record, found: " + std::string(log.status().message()));
      continue;
    }
    auto source = std::make_unique<RecordSource>(std::move(*log), report, streams);
    if (source->ReadHeader()) sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace plumbline::audit
