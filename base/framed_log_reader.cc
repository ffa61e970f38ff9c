#include <zstd.h>

#include <utility>

#include "base/framed_log_format.h"

namespace plumbline {
namespace {

using namespace framed_log;

class Reader final : public FramedLogReader {
 public:
  Reader(std::unique_ptr<File> file, FramedLogOptions options)
      : file_(std::move(file)), limit_(Limit(options)) {}
  ~Reader() override { ZSTD_freeDCtx(zstd_); }

  // Reads the file header. A file that ends within it is unfinished, not foreign.
  absl::Status Start(const std::string& path);

  Result Next(FrameType* type, std::string* payload) override {
    FrameHeader header;
    const Result result = ReadFrame(&header);
    if (result != Result::kFrame) return result;
    if (!Unpack(header, payload)) return Result::kDamaged;
    *type = static_cast<FrameType>(header.type);
    Pass(header);
    return Result::kFrame;
  }

  Result Skip(FrameType* type) override {
    FrameHeader header;
    const Result result = ReadFrame(&header);
    if (result != Result::kFrame) return result;
    *type = static_cast<FrameType>(header.type);
    Pass(header);
    return Result::kFrame;
  }

  bool Resume() override;

  const std::string& error() const override { return error_; }
  uint64_t offset() const override { return offset_; }

 private:
  Result ReadFileHeader();
  Result ReadFrame(FrameHeader* header);
  bool CheckHeader(const char* raw, const FrameHeader& header);
  bool WholeFrameAt(const char* raw);
  bool Unpack(const FrameHeader& header, std::string* payload);
  bool OnlyZerosFollow();
  void Pass(const FrameHeader& h) { offset_ += kFrameHeaderSize + h.stored; }

  Result Damaged(uint64_t at, const std::string& expected, const std::string& found) {
    damaged_ = true;
    return Report(Result::kDamaged, at, expected, found);
  }
  Result Torn(uint64_t at, const std::string& expected, const std::string& found) {
    return Report(Result::kTornTail, at, expected, found);
  }
  Result Report(Result result, uint64_t at, const std::string& expected, const std::string& found) {
    error_ = absl::StrCat("byte ", at, ": expected ", expected, ", found ", found);
    return result;
  }
  Result ReadFailed() {
    return Damaged(offset_, "readable data", absl::StrCat("error ", std::strerror(errno)));
  }

  std::unique_ptr<File> file_;
  uint64_t limit_;
  uint64_t offset_ = 0;  // 0 until the file header is read
  bool damaged_ = false;
  std::string error_;
  std::string stored_;  // payload of the frame at offset_, as stored
  ZSTD_DCtx* zstd_ = nullptr;
};

absl::Status Reader::Start(const std::string& path) {
  char first[kMagic.size()];
  const ssize_t n = ReadAt(file_->fd(), 0, first, sizeof(first));
  if (n < 0) return SystemError(errno, "cannot read", path);
  if (std::memcmp(first, kMagic.data(), static_cast<size_t>(n)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": byte 0: expected the magic of a framed log, found other data"));
  }
  if (ReadFileHeader() == Result::kDamaged) {
    return absl::DataLossError(absl::StrCat(path, ": ", error_));
  }
  return absl::OkStatus();
}

FramedLogReader::Result Reader::ReadFileHeader() {
  char raw[kFileHeaderSize];
  const ssize_t n = ReadAt(file_->fd(), 0, raw, sizeof(raw));
  if (n < 0) return ReadFailed();
  if (n < static_cast<ssize_t>(kFileHeaderSize)) {
    return Torn(0, absl::StrCat("a file header of ", kFileHeaderSize, " bytes"),
                absl::StrCat("end of file after ", n));
  }
  const auto checksum = Crc32c(raw, 12);
  if (Get<uint32_t>(raw + 12) != checksum) {
    return Damaged(12, absl::StrCat("file header checksum ", Hex(checksum)),
                   Hex(Get<uint32_t>(raw + 12)));
  }
  if (std::memcmp(raw, kMagic.data(), kMagic.size()) != 0) {
    return Damaged(0, "the magic of a framed log", "other data");
  }
  if (Get<uint32_t>(raw + 8) != kVersion) {
    return Damaged(8, absl::StrCat("version ", kVersion), absl::StrCat(Get<uint32_t>(raw + 8)));
  }
  offset_ = kFileHeaderSize;
  return Result::kFrame;
}

// Reads the frame at offset_: checks the header, and the checksum of the stored payload in stored_.
FramedLogReader::Result Reader::ReadFrame(FrameHeader* header) {
  if (damaged_) return Result::kDamaged;
  if (offset_ == 0) {
    const Result result = ReadFileHeader();
    if (result != Result::kFrame) return result;
  }
  char raw[kFrameHeaderSize];
  const ssize_t n = ReadAt(file_->fd(), offset_, raw, sizeof(raw));
  if (n < 0) return ReadFailed();
  if (n == 0) return Result::kEnd;
  if (n < static_cast<ssize_t>(kFrameHeaderSize)) {
    return Torn(offset_, absl::StrCat("a frame header of ", kFrameHeaderSize, " bytes"),
                absl::StrCat("end of file after ", n));
  }
  *header = Decode(raw);
  if (!CheckHeader(raw, *header)) {
    return damaged_ ? Result::kDamaged : Result::kTornTail;
  }
  stored_.resize(header->stored);
  const uint64_t at = offset_ + kFrameHeaderSize;
  const ssize_t got = ReadAt(file_->fd(), at, stored_.data(), stored_.size());
  if (got < 0) return ReadFailed();
  if (static_cast<size_t>(got) < stored_.size()) {
    return Torn(at, absl::StrCat("a payload of ", stored_.size(), " bytes"),
                absl::StrCat("end of file after ", got));
  }
  const uint32_t checksum = Crc32c(stored_.data(), stored_.size());
  if (checksum != header->payload_checksum) {
    return Damaged(at, absl::StrCat("payload checksum ", Hex(header->payload_checksum)),
                   Hex(checksum));
  }
  return Result::kFrame;
}

bool Reader::CheckHeader(const char* raw, const FrameHeader& header) {
  const uint32_t checksum = Crc32c(raw, 16);
  if (Get<uint32_t>(raw + 16) != checksum) {
    if (OnlyZerosFollow()) {
      Torn(offset_, "a frame header", "zeros up to the end of the file");
    } else {
      Damaged(offset_ + 16, absl::StrCat("frame header checksum ", Hex(checksum)),
              Hex(Get<uint32_t>(raw + 16)));
    }
    return false;
  }
  if (header.codec > kZstd || header.reserved != 0) {
    Damaged(offset_ + 9, "codec 0 or 1", absl::StrCat(header.codec));
  } else if (header.stored > limit_) {
    Damaged(offset_, absl::StrCat("a stored payload of at most ", limit_, " bytes"),
            absl::StrCat(header.stored));
  } else if (header.size > limit_) {
    Damaged(offset_ + 4, absl::StrCat("a payload of at most ", limit_, " bytes"),
            absl::StrCat(header.size));
  } else if (header.codec == kRaw && header.size != header.stored) {
    Damaged(offset_ + 4, absl::StrCat("a raw payload of ", header.stored, " bytes"),
            absl::StrCat(header.size));
  }
  return !damaged_;
}

// Tests whether a whole frame is at `offset_`, by its header alone.
bool Reader::WholeFrameAt(const char* raw) {
  if (Get<uint8_t>(raw + 9) > kZstd || Get<uint16_t>(raw + 10) != 0 || !Undamaged(raw)) {
    return false;
  }
  FrameHeader header;
  const Result result = ReadFrame(&header);
  damaged_ = false;
  return result == Result::kFrame;
}

bool Reader::Resume() {
  if (!damaged_ || offset_ == 0) return false;
  damaged_ = false;
  const std::string first_error = error_;
  std::string block(size_t{1} << 20, '\0');
  for (uint64_t start = offset_ + 1;;) {
    const ssize_t n = ReadAt(file_->fd(), start, block.data(), block.size());
    if (n < static_cast<ssize_t>(kFrameHeaderSize)) break;
    const size_t last = static_cast<size_t>(n) - kFrameHeaderSize;
    for (size_t i = 0; i <= last; ++i) {
      offset_ = start + i;
      if (!WholeFrameAt(block.data() + i)) continue;
      error_ = first_error;
      return true;
    }
    start += last + 1;
  }
  error_ = first_error;
  damaged_ = true;
  return false;
}

bool Reader::Unpack(const FrameHeader& header, std::string* payload) {
  if (header.codec == kRaw) {
    payload->assign(stored_);
    return true;
  }
  const uint64_t at = offset_ + kFrameHeaderSize;
  const std::string expected = absl::StrCat("one zstd frame of ", header.size, " bytes");
  const auto content = ZSTD_getFrameContentSize(stored_.data(), stored_.size());
  if (content != header.size ||
      ZSTD_findFrameCompressedSize(stored_.data(), stored_.size()) != stored_.size()) {
    Damaged(at, expected, "another size or no zstd frame");
    return false;
  }
  if (zstd_ == nullptr) zstd_ = ZSTD_createDCtx();
  payload->resize(header.size);
  const size_t n = zstd_ == nullptr ? 0
                                    : ZSTD_decompressDCtx(zstd_, payload->data(), payload->size(),
                                                          stored_.data(), stored_.size());
  if (zstd_ == nullptr || ZSTD_isError(n) != 0 || n != header.size) {
    payload->clear();
    Damaged(at, expected, ZSTD_isError(n) != 0 ? ZSTD_getErrorName(n) : "another size");
    return false;
  }
  return true;
}

bool Reader::OnlyZerosFollow() {
  std::array<char, 4096> block;
  for (uint64_t at = offset_;;) {
    const ssize_t n = ReadAt(file_->fd(), at, block.data(), block.size());
    if (n < 0) return false;
    if (n == 0) return true;
    if (std::any_of(block.begin(), block.begin() + n, [](char c) { return c != 0; })) return false;
    at += static_cast<uint64_t>(n);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FramedLogReader>> FramedLogReader::Open(const std::string& path,
                                                                       FramedLogOptions options) {
  absl::StatusOr<std::unique_ptr<File>> file = OpenFile(path, O_RDONLY);
  if (!file.ok()) return file.status();
  auto reader = std::make_unique<Reader>(*std::move(file), options);
  if (absl::Status started = reader->Start(path); !started.ok()) return started;
  return reader;
}

bool FramedLogReader::Recognise(std::string_view first_bytes) {
  return first_bytes.size() >= kMagic.size() &&
         std::memcmp(first_bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

std::optional<FrameType> FramedLogReader::FirstType(std::string_view first_bytes) {
  if (first_bytes.size() < kFileHeaderSize + kFrameHeaderSize) return std::nullopt;
  const char* frame = first_bytes.data() + kFileHeaderSize;
  if (!Undamaged(frame)) return std::nullopt;
  return static_cast<FrameType>(Decode(frame).type);
}

}  // namespace plumbline
