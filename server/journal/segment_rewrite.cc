#include "server/journal/segment_rewrite.h"

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/entry.h"
#include "server/journal/format_check.h"
#include "server/journal/packed_block.h"

namespace plumbline::server {
namespace {

using Read = FramedLogReader::Result;

constexpr char kAdjacent[] = ".rewrite";

// Syncs often, because one large sync would delay commits.
constexpr uint64_t kSyncEach = 8u << 20;

class Rewrite {
 public:
  Rewrite(const Segment& segment, uint64_t last_entry, const RewriteOptions& options)
      : segment_(segment), last_(last_entry), options_(options), next_(segment.first) {}

  absl::Status Run() {
    auto in = FramedLogReader::Open(segment_.path, JournalLogOptions());
    if (!in.ok()) return in.status();
    in_ = std::move(*in);
    auto out = FramedLogWriter::Open(RewritePath(segment_), JournalLogOptions());
    if (!out.ok()) return out.status();
    out_ = std::move(*out);
    for (;;) {
      FrameType type;
      const uint64_t at = in_->offset();
      const Read result = in_->Next(&type, &payload_);
      if (result == Read::kDamaged) return Damaged(in_->error());
      if (result != Read::kFrame) break;  // a torn tail: all complete entries were read
      if (auto s = Take(type, at); !s.ok()) return s;
    }
    if (next_ != last_ + 1) {
      return Damaged(absl::StrCat("expected entries to ", last_, ", found them to ", next_ - 1));
    }
    if (auto s = WriteBlock(); !s.ok()) return s;
    return out_->Sync();
  }

 private:
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(segment_.path, ": ", what));
  }

  absl::Status Take(FrameType type, uint64_t at) {
    if (type == FrameType::kJournalHeader) return TakeHeader();
    if (type == FrameType::kJournalStreams) return Append(type, payload_, true);
    if (type != FrameType::kJournalPacked) return TakeEntry(type, payload_);
    std::string why;
    if (!block_in_.Open(payload_, &why)) return Damaged(absl::StrCat("byte ", at, ": ", why));
    std::string_view entry;
    while (block_in_.Next(&type, &entry)) {
      if (auto s = TakeEntry(type, entry); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status TakeHeader() {
    v1::JournalHeader header;
    if (!header.ParseFromString(payload_)) return Damaged("its header is invalid");
    header.set_schema(options_.pack ? kPackedSchema : kJournalSchema);
    header.set_tool_version(options_.tool_version);
    if (options_.edit) header.set_samples_removed(true);
    return Append(FrameType::kJournalHeader, header.SerializeAsString(), false);
  }

  absl::Status TakeEntry(FrameType type, std::string_view payload) {
    EntryPrefix prefix;
    if (!IsEntry(type) || !EntryPrefix::Decode(payload, &prefix)) {
      return Damaged(absl::StrCat("expected an entry, found a frame of type ",
                                  static_cast<int>(type), " and ", payload.size(), " bytes"));
    }
    if (prefix.number > last_) return absl::OkStatus();  // void: the next segment has this entry
    if (prefix.number != next_) {
      return Damaged(absl::StrCat("expected entry ", next_, ", found ", prefix.number));
    }
    ++next_;
    if (options_.edit && options_.edit(type, payload, &edited_)) payload = edited_;
    const bool alone = !options_.pack || payload.size() > kMostPackedEntry;
    if (alone || block_.full()) {
      if (auto s = WriteBlock(); !s.ok()) return s;
    }
    if (alone) return Append(type, payload, options_.pack);
    block_.Add(type, payload);
    return absl::OkStatus();
  }

  absl::Status WriteBlock() {
    if (block_.bytes() == 0) return absl::OkStatus();
    if (!block_.Finish(&packed_)) {
      return Damaged(absl::StrCat("entries before ", next_, " would not be restored exactly"));
    }
    return Append(FrameType::kJournalPacked, packed_, false);
  }

  absl::Status Append(FrameType type, std::string_view payload, bool may_compress) {
    const FrameToAppend frame{type, {&payload, 1}, may_compress};
    if (auto s = out_->AppendAll({&frame, 1}); !s.ok()) return s;
    if (!options_.go_on()) return absl::CancelledError("stopped");
    if (synced_ + kSyncEach > out_->size_bytes()) return absl::OkStatus();
    synced_ = out_->size_bytes();
    return out_->Sync();
  }

  const Segment& segment_;
  const uint64_t last_;
  const RewriteOptions& options_;
  uint64_t next_;  // number of the expected entry
  std::unique_ptr<FramedLogReader> in_;
  std::unique_ptr<FramedLogWriter> out_;
  std::string payload_, packed_, edited_;
  BlockReader block_in_;
  BlockPacker block_;
  uint64_t synced_ = 0;
};

}  // namespace

absl::StatusOr<bool> IsPacked(const Segment& segment) {
  auto log = FramedLogReader::Open(segment.path, JournalLogOptions());
  if (!log.ok()) return log.status();
  FrameType type;
  std::string payload;
  v1::JournalHeader header;
  if ((*log)->Next(&type, &payload) != Read::kFrame || type != FrameType::kJournalHeader ||
      !header.ParseFromString(payload)) {
    return absl::DataLossError(absl::StrCat(segment.path, ": expected the header of a segment"));
  }
  return header.schema() == kPackedSchema;
}

std::string RewritePath(const Segment& segment) { return segment.path + kAdjacent; }
bool IsRewritePath(const std::string& path) {
  return path.ends_with(std::string(".plj") + kAdjacent);
}

absl::Status RewriteSegment(const Segment& segment, uint64_t last_entry,
                            const RewriteOptions& options) {
  const std::string path = RewritePath(segment);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  absl::Status done = Rewrite(segment, last_entry, options).Run();
  if (!done.ok()) std::filesystem::remove(path, ignored);
  return done;
}

}  // namespace plumbline::server
