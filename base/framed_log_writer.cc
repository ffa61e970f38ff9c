#include <zstd.h>

#include <utility>

#include "base/framed_log_format.h"

namespace plumbline {
namespace {

using namespace framed_log;

class Writer final : public FramedLogWriter {
 public:
  Writer(std::string path, std::unique_ptr<File> file, FramedLogOptions options, uint64_t size,
         bool created)
      : path_(std::move(path)),
        file_(std::move(file)),
        options_(options),
        size_(size),
        sync_folder_(created) {}
  ~Writer() override { ZSTD_freeCCtx(zstd_); }

  absl::Status Append(FrameType type, std::string_view payload) override;
  absl::Status AppendAll(std::span<const FrameToAppend> frames) override;
  absl::Status Sync() override;
  uint64_t size_bytes() const override { return size_; }

  // Appends `bytes`, or leaves the file unchanged.
  absl::Status WriteWhole(std::string_view bytes);
  // Cuts off everything after the last whole frame.
  absl::Status CutBack();

 private:
  void BuildFrame(const FrameToAppend& frame);
  bool CompressFrom(size_t payload);

  std::string path_;
  std::unique_ptr<File> file_;
  FramedLogOptions options_;
  uint64_t size_;           // up to the end of the last whole frame
  bool sync_folder_;        // the file's name is not yet durable
  bool tail_torn_ = false;  // a failed write left bytes after size_ that could not be cut off
  std::string frames_;
  std::string packed_;
  ZSTD_CCtx* zstd_ = nullptr;
};

absl::Status Writer::Append(FrameType type, std::string_view payload) {
  const FrameToAppend frame{type, {&payload, 1}};
  return AppendAll({&frame, 1});
}

absl::Status Writer::AppendAll(std::span<const FrameToAppend> frames) {
  size_t total = 0;
  for (const FrameToAppend& frame : frames) {
    size_t size = 0;
    for (const std::string_view part : frame.parts) size += part.size();
    if (size > Limit(options_)) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": payload: expected at most ",
                                                     Limit(options_), " bytes, found ", size));
    }
    total += kFrameHeaderSize + size;
  }
  frames_.clear();
  frames_.reserve(total);
  for (const FrameToAppend& frame : frames) BuildFrame(frame);
  return WriteWhole(frames_);
}

absl::Status Writer::WriteWhole(std::string_view bytes) {
  if (tail_torn_) {
    if (absl::Status cut = CutBack(); !cut.ok()) return cut;
  }
  const int error = WriteAt(file_->fd(), size_, bytes.data(), bytes.size());
  if (error != 0) {
    tail_torn_ = true;
    CutBack().IgnoreError();  // the next append tries again; readers see an unfinished tail until
                              // then
    return SystemError(error, absl::StrCat("cannot append ", bytes.size(), " bytes"), path_);
  }
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::Status Writer::CutBack() {
  int result;
  do {
    result = ftruncate(file_->fd(), static_cast<off_t>(size_));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return SystemError(errno, "cannot cut off a torn tail", path_);
  tail_torn_ = false;
  return absl::OkStatus();
}

// Appends the frame to frames_.
void Writer::BuildFrame(const FrameToAppend& frame) {
  const size_t start = frames_.size();
  frames_.append(kFrameHeaderSize, '\0');
  for (const std::string_view part : frame.parts) frames_.append(part);
  FrameHeader h;
  h.type = static_cast<uint8_t>(frame.type);
  h.size = static_cast<uint32_t>(frames_.size() - start - kFrameHeaderSize);
  if (options_.compress && frame.may_compress && h.size >= kCompressFrom &&
      CompressFrom(start + kFrameHeaderSize)) {
    h.codec = kZstd;
  }
  h.stored = static_cast<uint32_t>(frames_.size() - start - kFrameHeaderSize);
  h.payload_checksum = Crc32c(frames_.data() + start + kFrameHeaderSize, h.stored);
  Encode(h, frames_.data() + start);
}

// Compresses the bytes of frames_ from `payload` on; returns false if that would not be smaller.
bool Writer::CompressFrom(size_t payload) {
  if (zstd_ == nullptr) zstd_ = ZSTD_createCCtx();
  if (zstd_ == nullptr) return false;
  const size_t size = frames_.size() - payload;
  packed_.resize(ZSTD_compressBound(size));
  const size_t n = ZSTD_compressCCtx(zstd_, packed_.data(), packed_.size(),
                                     frames_.data() + payload, size, kZstdLevel);
  if (ZSTD_isError(n) != 0 || n >= size) return false;
  frames_.replace(payload, size, packed_, 0, n);
  return true;
}

absl::Status Writer::Sync() {
  if (fdatasync(file_->fd()) != 0) return SystemError(errno, "cannot sync", path_);
  if (!sync_folder_) return absl::OkStatus();
  const std::string folder = FolderOf(path_);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(errno, "cannot open", folder);
  const File closes(fd);
  if (fsync(fd) != 0) return SystemError(errno, "cannot sync", folder);
  sync_folder_ = false;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FramedLogWriter>> FramedLogWriter::Open(const std::string& path,
                                                                       FramedLogOptions options) {
  absl::StatusOr<std::unique_ptr<File>> file = OpenFile(path, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();

  // The scan opens a second descriptor, which it closes.
  absl::StatusOr<std::unique_ptr<FramedLogReader>> scan = FramedLogReader::Open(path, options);
  if (!scan.ok()) return scan.status();
  FrameType type;
  FramedLogReader::Result result;
  do {
    result = (*scan)->Skip(&type);
  } while (result == FramedLogReader::Result::kFrame);
  if (result == FramedLogReader::Result::kDamaged) {
    return absl::DataLossError(absl::StrCat(path, ": ", (*scan)->error()));
  }

  const uint64_t size = (*scan)->offset();
  auto writer = std::make_unique<Writer>(path, *std::move(file), options, size, size == 0);
  if (absl::Status cut = writer->CutBack(); !cut.ok()) return cut;
  if (size == 0) {
    const auto header = FileHeader();
    absl::Status written = writer->WriteWhole(std::string_view(header.data(), header.size()));
    if (!written.ok()) return written;
  }
  return writer;
}

std::string FramedLogBytes(std::span<const std::pair<FrameType, std::string_view>> frames) {
  const auto head = framed_log::FileHeader();
  std::string out(head.data(), head.size());
  for (const auto& [type, payload] : frames) {
    framed_log::FrameHeader header;
    header.stored = header.size = static_cast<uint32_t>(payload.size());
    header.type = static_cast<uint8_t>(type);
    header.payload_checksum = Crc32c(payload.data(), payload.size());
    char bytes[framed_log::kFrameHeaderSize];
    framed_log::Encode(header, bytes);
    out.append(bytes, sizeof bytes);
    out.append(payload);
  }
  return out;
}

}  // namespace plumbline
