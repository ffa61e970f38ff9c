// Reads TensorBoard's event files (TFRecord). A record is a length, its checksum, the data and its
// checksum. The data is an Event. Checksums are masked CRC-32C.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "audit/readers/input/block_reader.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/tensorboard/event.h"
#include "base/crc32c.h"

namespace plumbline::audit {
namespace {

constexpr size_t kRecordHead = 12;  // bytes of the length and its checksum
constexpr size_t kRecordTail = 4;   // bytes of the data's checksum
// Larger records hold no scalars, so only their checksum is checked.
constexpr uint64_t kMostEvent = 256u << 20;
constexpr uint64_t kEventsAtOnce = 1u << 20;  // bytes per call of Read
constexpr std::string_view kEventVersion = "brain.Event:";

uint32_t Masked(std::string_view bytes, uint32_t crc = 0) {
  crc = Crc32c(bytes.data(), bytes.size(), crc);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

uint32_t EventWord(const char* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint64_t LengthOf(std::string_view head) {
  uint64_t length;
  std::memcpy(&length, head.data(), sizeof length);
  return length;
}

bool IsZeros(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

bool LengthHolds(std::string_view head) { return Masked(head.substr(0, 8)) == EventWord(&head[8]); }

// Writers without a step write step 0 for each point. So as long as a file has only step 0, numbers
// the points of each series.
class CountedSteps : public PointSink {
 public:
  void Forward(PointSink* sink) { sink_ = sink; }
  bool stepped() const { return stepped_; }
  uint64_t counted() const { return counted_; }

  uint32_t Column(std::string_view name) override { return sink_->Column(name); }
  void Add(int64_t step, uint32_t column, double value) override {
    if (step != 0 || column == kNoColumn) {
      stepped_ |= step != 0;
      return sink_->Add(step, column, value);
    }
    if (column >= next_.size()) next_.resize(column + 1, 0);
    counted_ += next_[column] > 0 ? 1 : 0;
    sink_->Add(next_[column]++, column, value);
  }
  void Resumed() override { sink_->Resumed(); }
  void Unplaced(uint64_t values) override { sink_->Unplaced(values); }
  void Belongs(std::string_view run, int64_t rank) override { sink_->Belongs(run, rank); }
  void Setting(std::string_view name, std::string_view value) override {
    sink_->Setting(name, value);
  }

 private:
  PointSink* sink_ = nullptr;
  bool stepped_ = false;
  uint64_t counted_ = 0;
  std::vector<int64_t> next_;  // column -> next number
};

class TensorBoardFile : public PointFile {
 public:
  TensorBoardFile(std::unique_ptr<BlockReader> in, InputReport* report)
      : in_(std::move(in)), report_(report) {}

  bool Read(PointSink* sink) override {
    const uint64_t until = in_->offset() + kEventsAtOnce;
    while (in_->offset() < until) {
      if (ended_ || !ReadRecord(sink)) return false;
    }
    return true;
  }

  uint64_t bytes_read() const override { return in_->stream().file_bytes_read(); }

  void Close(PointSink* /*sink*/) override {
    if (const auto& problem = in_->stream().problem())
      report_->Add(problem->offset, problem->text, problem->error);
    if (bad_ > 0) {
      report_->Add(first_bad_,
                   "expected data that match their checksum, found " + std::to_string(bad_) +
                       " records that do not match: they are ignored",
                   false);
    }
    report_->steps_are_rows = steps_.counted() > 0 && !steps_.stepped();
    if (steps_.counted() > 0)
      report_->Note("expected a step with each point, found " + std::to_string(steps_.counted()) +
                    " more points with step 0: points of a series are numbered from 0");
    if (!ended_ && !in_->Peek(1).empty()) ReportEnd();
    ended_ = true;
  }

 private:
  // Reports the bytes after the last whole record: a truncated record, or preallocated space that
  // was never written.
  void ReportEnd() {
    const uint64_t at = in_->offset();
    if (!IsZeros(in_->Peek(kRecordHead))) {
      report_->Add(at, "expected a complete record, found the end of the file", false);
      return;
    }
    while (true) {
      const std::string_view piece = in_->Peek(kEventsAtOnce);
      if (!IsZeros(piece)) return Damaged(at);
      if (piece.empty()) break;
      in_->Skip(piece.size());
    }
    report_->Add(at,
                 "expected a complete record, found only zero bytes up to the end of the file: it "
                 "was not written completely",
                 false);
  }

  void Damaged(uint64_t at) {
    report_->Add(at,
                 "expected a length that matches its checksum, found a mismatch: the file is read "
                 "up to here");
    ended_ = true;
  }

  // Reads one record. Returns false if there is no whole record.
  bool ReadRecord(PointSink* sink) {
    const std::string_view head = in_->Peek(kRecordHead);
    if (head.size() < kRecordHead) return false;
    if (!LengthHolds(head)) {
      if (!IsZeros(head)) Damaged(in_->offset());
      return false;  // Close reports zeros, because only then the bytes after them are known
    }
    const uint64_t length = LengthOf(head);
    if (length > kMostEvent) return SkipLarge(length);
    const std::string_view record = in_->Peek(kRecordHead + length + kRecordTail);
    if (record.size() < kRecordHead + length + kRecordTail) return false;
    const std::string_view data = record.substr(kRecordHead, length);
    if (Masked(data) != EventWord(data.data() + length)) {
      if (bad_++ == 0) first_bad_ = in_->offset();
    } else {
      ++report_->records;
      steps_.Forward(sink);
      if (!ReadEvent(data, steps_.stepped() ? sink : &steps_))
        report_->Add(in_->offset() + kRecordHead, "expected an event, found other bytes");
    }
    in_->Skip(record.size());
    return true;
  }

  // Skips a record that is larger than any event with scalars: checks only its checksum.
  bool SkipLarge(uint64_t length) {
    in_->Skip(kRecordHead);
    const uint64_t at = in_->offset();
    uint32_t crc = 0;
    while (length > 0) {
      const std::string_view piece = in_->Peek(std::min(length, kEventsAtOnce));
      if (piece.empty()) break;
      crc = Crc32c(piece.data(), piece.size(), crc);
      length -= piece.size();
      in_->Skip(piece.size());
    }
    const std::string_view tail = in_->Peek(kRecordTail);
    if (length > 0 || tail.size() < kRecordTail) {
      report_->Add(at, "expected a complete record, found the end of the file", false);
      ended_ = true;
      return false;
    }
    if (Masked({}, crc) != EventWord(tail.data())) {
      if (bad_++ == 0) first_bad_ = at;
    } else {
      ++report_->records;
    }
    in_->Skip(kRecordTail);
    return true;
  }

  std::unique_ptr<BlockReader> in_;
  InputReport* report_;
  uint64_t bad_ = 0;
  uint64_t first_bad_ = 0;
  CountedSteps steps_;
  bool ended_ = false;
};

// Returns the file's first bytes, decompressed.
std::string HeadOf(std::string_view path, std::string_view head) {
  return IsCompressed(head) ? FirstBytes(path, head, Reader::kHeadBytes) : std::string(head);
}

bool IsEventName(std::string_view path) {
  return path.substr(path.rfind('/') + 1).find("tfevents") != std::string_view::npos;
}

// Recognises event files. Records of data sets have the same framing, so the first record must be
// an event.
bool IsTensorBoard(std::string_view path, std::string_view raw) {
  const std::string bytes = HeadOf(path, raw);
  const std::string_view head = bytes;
  const size_t version = head.substr(0, 64).find(kEventVersion);
  // If the file was only just begun, its name alone identifies it.
  if (head.size() < kRecordHead) return IsEventName(path) && head.size() == raw.size();
  if (!LengthHolds(head)) return version != std::string_view::npos;
  if (version != std::string_view::npos) return true;
  const uint64_t length = LengthOf(head);
  const bool whole = length <= head.size() - kRecordHead;
  return whole ? EventTime(head.substr(kRecordHead, length)).has_value() : IsEventName(path);
}

double EventFileBegun(std::string_view path, std::string_view raw) {
  const std::string head = HeadOf(path, raw);
  if (head.size() >= kRecordHead && LengthHolds(head)) {
    const uint64_t length = LengthOf(head);
    if (length <= head.size() - kRecordHead) {
      if (const auto time = EventTime(std::string_view(head).substr(kRecordHead, length)))
        return *time;
    }
  }
  constexpr std::string_view kBefore = "tfevents.";
  const size_t name = path.rfind(kBefore);
  if (name == std::string_view::npos) return std::numeric_limits<double>::quiet_NaN();
  double time = std::numeric_limits<double>::quiet_NaN();
  std::from_chars(path.data() + name + kBefore.size(), path.data() + path.size(), time,
                  std::chars_format::fixed);
  return time;
}

std::unique_ptr<PointFile> OpenTensorBoard(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<BlockReader> in = OpenBlocks(report);
  return in == nullptr ? nullptr : std::make_unique<TensorBoardFile>(std::move(in), report);
}

}  // namespace

const PointFormat& TensorBoardFormat() {
  static constexpr PointFormat kFormat = {"tensorboard", IsTensorBoard, OpenTensorBoard, true,
                                          EventFileBegun};
  return kFormat;
}

}  // namespace plumbline::audit
