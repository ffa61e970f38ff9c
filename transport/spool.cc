#include "transport/spool.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace plumbline::transport {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSchema = "plumbline.spool/1";
constexpr uint64_t kRetryNs = 1'000'000'000;
constexpr uint64_t kFrameBytes = 64;  // approximate bytes of a batch in addition to its body

// Reads the header of a segment; `reader` continues after it.
absl::StatusOr<v1::SpoolHeader> ReadHeader(FramedLogReader* reader, const std::string& path) {
  FrameType type{};
  std::string payload;
  v1::SpoolHeader header;
  if (reader->Next(&type, &payload) != FramedLogReader::Result::kFrame ||
      type != FrameType::kSpoolHeader || !header.ParseFromString(payload) ||
      header.schema() != kSchema || header.stream_id() == 0) {
    return absl::DataLossError(absl::StrCat(path, ": expected the header of a spool's segment"));
  }
  return header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Spool>> Spool::Create(const std::string& dir,
                                                     const v1::Source& source, uint64_t stream_id,
                                                     SpoolOptions options) {
  std::string path = SpoolPath(dir, source.role(), source.rank(), stream_id);
  auto lock = SpoolLock::Make(path);
  if (!lock.ok()) return lock.status();
  std::unique_ptr<Spool> spool(new Spool(std::move(path), std::move(options), *std::move(lock)));
  spool->header_.set_schema(kSchema);
  spool->header_.set_tool_version(spool->options_.tool_version);
  *spool->header_.mutable_source() = source;
  spool->header_.set_stream_id(stream_id);
  return spool;
}

absl::StatusOr<std::unique_ptr<Spool>> Spool::Adopt(const std::string& path, SpoolOptions options) {
  auto lock = SpoolLock::Take(path);
  if (!lock.ok()) return lock.status();
  std::unique_ptr<Spool> spool(new Spool(path, std::move(options), *std::move(lock)));
  if (absl::Status s = spool->ReadHeaders(); !s.ok()) return s;
  spool->ScanLastSegment();
  return spool;
}

Spool::~Spool() {
  // The report of a damaged end takes the number after the last one.
  if (acknowledged_ < last_ + (damaged_end_ ? 1 : 0)) return;
  while (!segments_.empty()) RemoveFront();
  lock_->RemoveDirectory();
}

// Reads the headers of all segments. Each segment ends where the next one begins.
absl::Status Spool::ReadHeaders() {
  bool known = false;
  for (const FoundSegment& found : FindSegments(path_)) {
    segments_.push_back({found.path, found.first, found.first - 1, 0, 0, found.bytes});
    bytes_ += found.bytes;
    auto reader = FramedLogReader::Open(found.path);
    if (!reader.ok()) continue;
    auto header = ReadHeader(reader->get(), found.path);
    if (!header.ok()) continue;
    segments_.back().items_before = header->items_before();
    known = true;
    header_ = *std::move(header);
  }
  for (size_t i = 0; i + 1 < segments_.size(); ++i) {
    Segment& s = segments_[i];
    s.last = segments_[i + 1].first - 1;
    s.items =
        segments_[i + 1].items_before - std::min(s.items_before, segments_[i + 1].items_before);
  }
  if (segments_.empty()) return absl::NotFoundError(absl::StrCat(path_, ": nothing to deliver"));
  if (!known) {
    acknowledged_ = last_ = 0;
    damaged_end_ = true;  // not deleted: a person may still want it
    return absl::DataLossError(absl::StrCat(path_, ": no segment names its owner"));
  }
  next_ = segments_.front().first;
  acknowledged_ = next_ - 1;
  return absl::OkStatus();
}

void Spool::ScanLastSegment() {
  Segment& s = segments_.back();
  last_ = s.last;
  auto reader = FramedLogReader::Open(s.path);
  if (!reader.ok() || !ReadHeader(reader->get(), s.path).ok()) {
    // A process that dies while it begins a segment leaves an empty or incomplete one.
    damaged_end_ = s.bytes > kFrameBytes * 16;
    return;
  }
  FrameType type{};
  std::string payload;
  FramedLogReader::Result result;
  while ((result = (*reader)->Next(&type, &payload)) == FramedLogReader::Result::kFrame) {
    v1::Batch batch;
    if (type != FrameType::kBatch || !batch.ParseFromString(payload)) {
      result = FramedLogReader::Result::kDamaged;
      break;
    }
    s.items += Seal(batch).items;
    s.last = ++last_;
  }
  damaged_end_ = result == FramedLogReader::Result::kDamaged;
}

uint64_t Spool::segment_bytes() const {
  return std::clamp<uint64_t>(options_.bytes / 16, 64u << 10, 16u << 20);
}

bool Spool::Crowded(uint64_t bytes) const {
  return bytes_ + bytes > options_.bytes - options_.bytes / 4;
}

absl::Status Spool::Append(uint64_t sequence, const SealedBatch& batch) {
  if (bytes_ + batch.body->size() + kFrameBytes > options_.bytes) {
    refusal_ = "spool-full";
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": holds ", bytes_, " of ", options_.bytes, " bytes"));
  }
  const uint64_t now = MonotonicNs();
  if (!failed_.ok() && now < retry_ns_) return failed_;
  failed_ = Write(sequence, batch);
  if (failed_.ok()) return failed_;
  refusal_ = "spool-write";
  retry_ns_ = now + kRetryNs;
  return failed_;
}

absl::Status Spool::Write(uint64_t sequence, const SealedBatch& batch) {
  const bool follows = !segments_.empty() && sequence == segments_.back().last + 1;
  if (log_ == nullptr || !follows || segments_.back().bytes >= segment_bytes()) {
    if (absl::Status s = StartSegment(sequence); !s.ok()) return s;
  }
  Segment& segment = segments_.back();
  absl::Status written =
      log_->Append(FrameType::kBatch, *batch.body + BatchNumber(header_.stream_id(), sequence));
  bytes_ += log_->size_bytes() - segment.bytes;
  segment.bytes = log_->size_bytes();
  if (!written.ok()) return written;
  segment.last = last_ = sequence;
  segment.items += batch.items;
  if (batch.sets != 0) header_.mutable_series_sets()->MergeFrom(Parsed(batch).series_sets());
  return absl::OkStatus();
}

absl::Status Spool::StartSegment(uint64_t first) {
  const uint64_t items = segments_.empty() ? header_.items_before()
                                           : segments_.back().items_before + segments_.back().items;
  if (!segments_.empty() && segments_.back().last < segments_.back().first) {
    // The segment was never written to, so the number in its name is wrong.
    std::error_code ignored;
    fs::remove(segments_.back().path, ignored);
    bytes_ -= segments_.back().bytes;
    segments_.pop_back();
  }
  log_.reset();
  header_.set_first_sequence(first);
  header_.set_items_before(items);
  const std::string path = SegmentPath(path_, first);
  if (absl::Status s = CreatePrivate(path); !s.ok()) return s;
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) return log.status();
  if (absl::Status s = (*log)->Append(FrameType::kSpoolHeader, header_.SerializeAsString());
      !s.ok()) {
    std::error_code ignored;
    fs::remove(path, ignored);
    return s;
  }
  log_ = *std::move(log);
  segments_.push_back({path, first, first - 1, 0, items, log_->size_bytes()});
  bytes_ += log_->size_bytes();
  Acknowledge(acknowledged_);  // the earlier segment may be acknowledged completely
  return absl::OkStatus();
}

const Spool::Segment* Spool::SegmentOf(uint64_t sequence) const {
  for (const Segment& s : segments_) {
    if (sequence <= s.last) return &s;
  }
  return nullptr;
}

bool Spool::OpenReader(const Segment& segment) {
  reader_.reset();
  reading_ = reader_at_ = segment.first;
  items_read_ = 0;
  auto reader = FramedLogReader::Open(segment.path);
  if (!reader.ok() || !ReadHeader(reader->get(), segment.path).ok()) return false;
  reader_ = *std::move(reader);
  return true;
}

Spool::Read Spool::Next() {
  const Segment* segment = SegmentOf(next_);
  if (segment == nullptr) return Read();
  next_ = std::max(next_, segment->first);  // the numbers between were acknowledged
  const bool here = reader_ != nullptr && reading_ == segment->first && reader_at_ <= next_;
  if (!here && !OpenReader(*segment)) return Lost(*segment);
  FrameType type{};
  std::string payload;
  v1::Batch batch;
  while (reader_->Next(&type, &payload) == FramedLogReader::Result::kFrame) {
    if (type != FrameType::kBatch || !batch.ParseFromString(payload) ||
        batch.sequence() != reader_at_) {
      break;
    }
    Read read;
    read.kind = Read::Kind::kBatch;
    read.sequence = reader_at_++;
    batch.clear_stream_id();
    batch.clear_sequence();
    read.batch = Seal(batch);
    items_read_ += read.batch.items;
    if (read.sequence < next_) continue;
    next_ = read.sequence + 1;
    return read;
  }
  return Lost(*segment);
}

// Gives up the remaining part of a segment that cannot be read.
Spool::Read Spool::Lost(const Segment& segment) {
  Read read;
  read.kind = Read::Kind::kLost;
  read.sequence = next_;
  read.through = segment.last;
  read.items = std::max<uint64_t>(1, segment.items - std::min(segment.items, items_read_));
  reader_.reset();
  next_ = segment.last + 1;
  if (&segment == &segments_.back()) log_.reset();  // later batches go to a new, readable segment
  return read;
}

void Spool::Acknowledge(uint64_t through) {
  acknowledged_ = std::max(acknowledged_, through);
  // Keeps the segment that is being written: it is short, so files are not created and deleted each
  // second.
  const size_t keep = log_ != nullptr ? 1 : 0;
  while (segments_.size() > keep && segments_.front().last <= acknowledged_) RemoveFront();
}

void Spool::RemoveFront() {
  std::error_code ignored;
  fs::remove(segments_.front().path, ignored);
  bytes_ -= segments_.front().bytes;
  segments_.pop_front();
}

}  // namespace plumbline::transport
