#include "audit/readers/nccl_log/reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/input/text_lines.h"
#include "audit/readers/nccl_log/communicators.h"
#include "audit/readers/nccl_log/evidence.h"
#include "audit/readers/nccl_log/joined_calls.h"
#include "audit/readers/nccl_log/line.h"
#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {
namespace {

// Bytes of a line; the line of a ring with many ranks is long.
constexpr size_t kMostNcclLine = 1 << 20;

// One file, and its reading position.
struct NcclFile {
  NcclFile(uint32_t n, InputReport* r, std::unique_ptr<ByteStream> stream, size_t read)
      : number(n), report(r), lines(std::move(stream), kMostNcclLine, LineEnds::kNewline, read) {}

  uint32_t number;  // index among the files
  InputReport* report;
  TextLines lines;
  bool ended = false;
  uint64_t calls = 0;
  uint64_t damaged = 0, damaged_at = 0;  // number of damaged calls, and line of the first one
};

class NcclSource : public Source {
 public:
  explicit NcclSource(std::vector<std::unique_ptr<NcclFile>> files) : files_(std::move(files)) {}

  Position position() const override { return {"", 0, INT64_MIN}; }

  // Returns a batch without evidence while the files are read.
  bool Next(v1::Batch* batch) override {
    if (NcclFile* file = Furthest(); file != nullptr) {
      ReadOn(file);
      return true;
    }
    if (!evidence_) {
      evidence_.emplace(communicators_, &calls_);
      ReportLeftOut();
    }
    return evidence_->Next(batch);
  }

  void Refused(const absl::Status& why) override {
    files_[0]->report->Add(0, "expected valid calls, found: " + std::string(why.message()));
  }

  uint64_t bytes_read() const override {
    uint64_t bytes = 0;
    for (const auto& file : files_) bytes += file->lines.stream().file_bytes_read();
    return bytes;
  }
  size_t files_done() const override {
    return static_cast<size_t>(
        std::count_if(files_.begin(), files_.end(), [](const auto& file) { return file->ended; }));
  }
  std::vector<v1::Source> processes() const override {
    return evidence_ ? evidence_->processes() : std::vector<v1::Source>();
  }

 private:
  // Returns the file with the fewest calls so far, so that few calls wait for their other ranks.
  NcclFile* Furthest() {
    NcclFile* furthest = nullptr;
    for (const auto& file : files_) {
      if (!file->ended && (furthest == nullptr || file->calls < furthest->calls))
        furthest = file.get();
    }
    return furthest;
  }

  void ReadOn(NcclFile* file) {
    TextLine line;
    if (file->lines.Fill()) {
      while (file->lines.Next(&line)) Take(line, file);
      return;
    }
    if (file->lines.Rest(&line)) Take(line, file);
    file->ended = true;
    if (const auto& problem = file->lines.stream().problem())
      file->report->Add(problem->offset, problem->text, problem->error);
    if (file->damaged > 0) {
      file->report->Add(file->damaged_at,
                        "expected complete calls, found " + std::to_string(file->damaged) +
                            " that are truncated, or mixed with output of another process",
                        false);
    }
  }

  void Take(const TextLine& line, NcclFile* file) {
    if (line.too_long) return;
    SplitNcclLine(line.text, line.ended, &messages_);
    for (const NcclMessage& message : messages_) {
      if (message.process.empty()) continue;
      TakeMessage(message, communicators_.Process(file->number, message.process), line.offset,
                  file);
    }
  }

  void TakeMessage(const NcclMessage& message, uint32_t process, uint64_t offset, NcclFile* file) {
    NcclCall call;
    switch (ParseNcclCall(message.text, &call)) {
      case NcclCallKind::kCall:
        TakeCall(process, call, offset, file);
        return;
      case NcclCallKind::kDamaged:
        Damaged(offset, file);
        return;
      case NcclCallKind::kPointToPoint:
        return;
      case NcclCallKind::kNone:
        break;
    }
    NcclRing ring;
    if (message.cut) return;
    if (const std::optional<NcclInit> init = ParseNcclInit(message.text)) {
      communicators_.Init(process, *init);
      communicators_.Made(process, message.thread, *init);
    } else if (ParseNcclRing(message.text, &ring)) {
      communicators_.Ring(process, message.thread, ring);
    } else if (const uint64_t comm = ParseNcclEnd(message.text); comm != 0) {
      communicators_.End(process, comm);
    }
  }

  void TakeCall(uint32_t process, const NcclCall& call, uint64_t offset, NcclFile* file) {
    constexpr size_t kMostOpen = 1 << 20;  // limit of open calls over all communicators
    ++file->calls;
    const NcclCommunicators::Member member = communicators_.Of(process, call);
    if (member.group == NcclCommunicators::kNone) {
      Damaged(offset, file);
      return;
    }
    ++file->report->records;
    const size_t groups = communicators_.groups().size();
    calls_.resize(groups);
    const uint32_t ranks = communicators_.groups()[member.group].nranks;
    calls_[member.group].Add(member.rank, call, std::max<size_t>(ranks, 1),
                             std::clamp<size_t>(kMostOpen / groups, 64, 1 << 14));
  }

  static void Damaged(uint64_t offset, NcclFile* file) {
    if (file->damaged++ == 0) file->damaged_at = offset;
  }

  void ReportLeftOut() {
    if (evidence_->left_out() > 0) {
      files_[0]->report->Add(0,
                             "expected one process for each rank of a communicator, found two: "
                             "calls of communicators that cannot be distinguished were not "
                             "compared (logs of NCCL 2.18 and later contain their ids)",
                             false);
    }
    uint64_t late = 0;
    for (const NcclJoinedCalls& calls : calls_) late += calls.too_late();
    if (late + communicators_.beyond() > 0) {
      files_[0]->report->Add(
          0,
          "expected logs of ranks that advance together, found " + std::to_string(late) +
              " calls too much later than the others, and " +
              std::to_string(communicators_.beyond()) +
              " communicators and rings above the limits: these were not compared",
          false);
    }
  }

  std::vector<std::unique_ptr<NcclFile>> files_;
  NcclCommunicators communicators_;
  std::vector<NcclJoinedCalls> calls_;  // group -> its calls
  std::vector<NcclMessage> messages_;
  std::optional<NcclEvidence> evidence_;
};

// Returns true if the text is a log of NCCL. Calls are sufficient for that. If there are none,
// NCCL's startup messages are sufficient, unless the rest is a trainer's log.
bool LooksLikeNccl(std::string_view text, bool* calls) {
  std::vector<NcclMessage> messages;
  NcclCall call;
  NcclRing ring;
  bool starts = false;
  *calls = false;
  for (size_t info = text.find("NCCL INFO "); info != std::string_view::npos && !*calls;) {
    const size_t newline = text.rfind('\n', info);
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const size_t end = std::min(text.find('\n', info), text.size());
    SplitNcclLine(text.substr(begin, end - begin), true, &messages);
    for (const NcclMessage& message : messages) {
      if (message.process.empty()) continue;
      const NcclCallKind kind = ParseNcclCall(message.text, &call);
      *calls |= kind == NcclCallKind::kCall || kind == NcclCallKind::kPointToPoint;
      starts |= ParseNcclInit(message.text).has_value() || ParseNcclRing(message.text, &ring);
    }
    info = text.find("NCCL INFO ", end);
  }
  return *calls || starts;
}

}  // namespace

bool NcclLogReader::Recognise(std::string_view path, std::string_view head) const {
  constexpr size_t kLook = 1 << 20;
  bool calls = false;
  const bool packed = IsCompressed(head);
  bool nccl = !packed && LooksLikeNccl(head, &calls);
  if (!calls && (packed || head.size() >= kHeadBytes)) {
    // Does not read further if the beginning is binary or a table of numbers.
    const bool text = packed || std::count(head.begin(), head.end(), '\0') < 64;
    nccl = text && LooksLikeNccl(FirstBytes(path, head, kLook), &calls);
  }
  return nccl && (calls || !TrainerLogFormat().recognise(path, head));
}

std::vector<std::unique_ptr<Source>> NcclLogReader::Open(
    const std::vector<InputReport*>& files) const {
  constexpr size_t kMostBuffers = 64u << 20;
  const size_t read =
      std::clamp<size_t>(kMostBuffers / std::max<size_t>(files.size(), 1), 16u << 10, 1u << 20);
  std::vector<std::unique_ptr<NcclFile>> open;
  for (InputReport* report : files) {
    absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (file.ok()) {
      open.push_back(std::make_unique<NcclFile>(static_cast<uint32_t>(open.size()), report,
                                                ByteStream::Open(std::move(*file)), read));
    } else {
      report->Add(0, std::string(file.status().message()));
    }
  }
  std::vector<std::unique_ptr<Source>> sources;
  if (!open.empty()) sources.push_back(std::make_unique<NcclSource>(std::move(open)));
  return sources;
}

}  // namespace plumbline::audit
