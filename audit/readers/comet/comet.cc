// Reads Comet's offline experiments: ID.zip, which holds messages.json, or that file alone.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "audit/readers/comet/comet_message.h"
#include "audit/readers/input/file.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/zip/archive.h"
#include "audit/readers/zip/records.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostCometLine = 1 << 20, kCometBytesAtOnce = 1 << 20;
constexpr std::string_view kCometMember = "messages.json";

void RefuseMessage(uint64_t offset, bool error, InputReport* report) {
  report->Add(offset, "expected a message of a Comet experiment, found another line", error);
}

class CometLines : public TextPointFile {
 public:
  CometLines(InputReport* report, std::unique_ptr<ByteStream> stream)
      : TextPointFile(report, std::move(stream), kMostCometLine, LineEnds::kNewline) {}

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    if (line.text.empty() && !line.too_long) return;
    ++report().records;
    if (line.too_long || !messages_.Read(line.text, sink))
      RefuseMessage(line.offset, line.ended, &report());
  }
  void Finish(PointSink* /*sink*/) override { report().settings = messages_.settings(); }

 private:
  CometMessages messages_;
};

// Reads messages.json in the archive. Its bytes are stored uncompressed.
class CometArchive : public PointFile {
 public:
  CometArchive(InputReport* report, InputFile file, const ZipMember& messages)
      : report_(report), file_(std::move(file)), at_(messages.begin), end_(messages.end()) {}

  bool Read(PointSink* sink) override {
    if (at_ >= end_) return false;
    const size_t kept = open_.size();
    open_.resize(kept + std::min<uint64_t>(kCometBytesAtOnce, end_ - at_));
    const absl::Status read = file_.ReadAt(at_, open_.data() + kept, open_.size() - kept);
    if (!read.ok()) {
      report_->Add(at_, std::string(read.message()));
      at_ = end_;
      open_.clear();
      return false;
    }
    at_ += open_.size() - kept;
    TakeLines(sink);
    return true;
  }

  uint64_t bytes_read() const override { return at_ < end_ ? at_ : file_.size(); }

  void Close(PointSink* sink) override {
    while (Read(sink)) {
    }
    if (!open_.empty()) TakeMessage(open_, at_ - open_.size(), sink);
    report_->settings = messages_.settings();
  }

 private:
  void TakeLines(PointSink* sink) {
    size_t begin = 0;
    for (size_t end = open_.find('\n'); end != std::string::npos; end = open_.find('\n', begin)) {
      TakeMessage(std::string_view(open_).substr(begin, end - begin), at_ - open_.size() + begin,
                  sink);
      begin = end + 1;
    }
    open_.erase(0, begin);
    if (open_.size() <= kMostCometLine) return;
    RefuseMessage(at_ - open_.size(), true, report_);
    at_ = end_;
    open_.clear();
  }

  void TakeMessage(std::string_view line, uint64_t offset, PointSink* sink) {
    if (line.empty()) return;
    ++report_->records;
    if (!messages_.Read(line, sink)) RefuseMessage(offset, true, report_);
  }

  InputReport* report_;
  InputFile file_;
  uint64_t at_, end_;
  std::string open_;  // beginning of a line that is not read completely yet
  CometMessages messages_;
};

// Returns true if the first member of the archive is one that Comet writes.
bool IsCometArchive(std::string_view head) {
  constexpr size_t kNameLength = 26, kName = 30;
  if (!head.starts_with("PK\x03\x04") || head.size() < kName) return false;
  const std::string_view name = head.substr(kName, Zip16(head, kNameLength));
  return name == "experiment.json" || name == kCometMember;
}

bool IsComet(std::string_view path, std::string_view head) {
  if (IsCometArchive(head)) return true;
  return path.ends_with(kCometMember) && CometMessages::Recognise(head);
}

std::unique_ptr<PointFile> OpenCometArchive(InputReport* report, InputFile file) {
  ZipArchive archive;
  if (const std::optional<Problem> problem = ReadZip(file, &archive)) {
    report->Add(problem->offset, problem->text);
    return nullptr;
  }
  const ZipMember* messages = archive.Find(kCometMember);
  if (messages == nullptr) {
    report->Add(0, "expected messages.json in the archive of a Comet experiment, found none");
    return nullptr;
  }
  if (!messages->unreadable.empty()) {
    report->Add(messages->head, "expected messages.json stored without compression, found " +
                                    messages->unreadable + ": unpack it with unzip FILE");
    return nullptr;
  }
  return std::make_unique<CometArchive>(report, std::move(file), *messages);
}

std::unique_ptr<PointFile> OpenComet(InputReport* report, const ScalarOptions& /*options*/) {
  absl::StatusOr<InputFile> file = InputFile::Open(report->path);
  if (!file.ok()) {
    report->Add(0, std::string(file.status().message()));
    return nullptr;
  }
  const absl::StatusOr<std::string> head = file->Head(Reader::kHeadBytes);
  if (head.ok() && IsCometArchive(*head)) return OpenCometArchive(report, *std::move(file));
  std::unique_ptr<ByteStream> stream = OpenText(report);
  return stream == nullptr ? nullptr : std::make_unique<CometLines>(report, std::move(stream));
}

}  // namespace

const PointFormat& CometFormat() {
  static constexpr PointFormat kFormat = {"comet", IsComet, OpenComet};
  return kFormat;
}

}  // namespace plumbline::audit
