// Layout, little-endian:
//
//   file header, 16 bytes
//     0  magic      8 bytes  89 'P' 'L' 'M' 'B' 0d 0a 1a   (the ends catch text-mode copies)
//     8  version    u32      1
//    12  checksum   u32      CRC-32C of bytes 0..11
//   frame, 20 bytes and its stored payload
//     0  stored     u32      bytes of payload that follow the frame header
//     4  size       u32      bytes of payload once decompressed
//     8  type       u8       FrameType
//     9  codec      u8       0 raw, 1 one zstd frame
//    10  reserved   u16      0
//    12  payload    u32      CRC-32C of the stored payload
//    16  checksum   u32      CRC-32C of bytes 0..15 of the frame header
//
// The frame header has a checksum of its own so that damage to a length is told from a file that
// ends early: only a frame whose header is cut, or is right and promises more than the file holds,
// is a torn tail. So is a tail of zeros alone, which file systems leave after a host dies.
#include "base/framed_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace plumbline {
namespace {

constexpr size_t kFileHeaderSize = 16;
constexpr size_t kFrameHeaderSize = 20;
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'P', 'L', 'M', 'B', 0x0d, 0x0a, 0x1a};
constexpr uint32_t kVersion = 1;
constexpr uint8_t kRaw = 0;
constexpr uint8_t kZstd = 1;
constexpr size_t kCompressFrom = 256;
constexpr int kZstdLevel = 1;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are stored as they lie in memory");

template <typename T>
T Get(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof(T));
  return v;
}
template <typename T>
void Put(char* at, T v) {
  std::memcpy(at, &v, sizeof(T));
}

std::array<char, kFileHeaderSize> FileHeader() {
  std::array<char, kFileHeaderSize> h{};
  std::memcpy(h.data(), kMagic.data(), kMagic.size());
  Put<uint32_t>(h.data() + 8, kVersion);
  Put<uint32_t>(h.data() + 12, Crc32c(h.data(), 12));
  return h;
}

struct FrameHeader {
  uint32_t stored = 0;
  uint32_t size = 0;
  uint8_t type = 0;
  uint8_t codec = kRaw;
  uint16_t reserved = 0;
  uint32_t payload_checksum = 0;
};

void Encode(const FrameHeader& h, char* at) {
  Put(at, h.stored);
  Put(at + 4, h.size);
  Put(at + 8, h.type);
  Put(at + 9, h.codec);
  Put(at + 10, h.reserved);
  Put(at + 12, h.payload_checksum);
  Put(at + 16, Crc32c(at, 16));
}

FrameHeader Decode(const char* at) {
  return {Get<uint32_t>(at),    Get<uint32_t>(at + 4),  Get<uint8_t>(at + 8),
          Get<uint8_t>(at + 9), Get<uint16_t>(at + 10), Get<uint32_t>(at + 12)};
}

// A payload length field is a u32, whatever the caller allows.
uint64_t Limit(const FramedLogOptions& options) {
  return std::min<uint64_t>(options.max_payload, std::numeric_limits<uint32_t>::max());
}

std::string Hex(uint32_t v) { return absl::StrCat("0x", absl::Hex(v, absl::kZeroPad8)); }

absl::Status SystemError(int error, const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(1, '.') : path.substr(0, slash + 1);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<std::unique_ptr<File>> OpenFile(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return SystemError(errno, "cannot open", path);
  auto file = std::make_unique<File>(fd);
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  return file;
}

// Reads up to `size` bytes; fewer only at the end of the file. -1 with errno on failure.
ssize_t ReadAt(int fd, uint64_t offset, char* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = pread(fd, out + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

// Writes all of it, or returns the errno that stopped it.
int WriteAt(int fd, uint64_t offset, const char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = pwrite(fd, data + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    done += static_cast<size_t>(n);
  }
  return 0;
}

// ---- reader --------------------------------------------------------------------------------

class Reader final : public FramedLogReader {
 public:
  Reader(std::unique_ptr<File> file, FramedLogOptions options)
      : file_(std::move(file)), limit_(Limit(options)) {}
  ~Reader() override { ZSTD_freeDCtx(zstd_); }

  // Reads the file header; a file that ends within one is torn, not foreign.
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

  // Next for who wants the place and not the payload: not decompressed.
  Result Skip() {
    FrameHeader header;
    const Result result = ReadFrame(&header);
    if (result == Result::kFrame) Pass(header);
    return result;
  }

  const std::string& error() const override { return error_; }
  uint64_t offset() const override { return offset_; }

 private:
  Result ReadFileHeader();
  Result ReadFrame(FrameHeader* header);
  bool CheckHeader(const char* raw, const FrameHeader& header);
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

// The frame at offset_: header checked, stored payload in stored_ and its checksum checked.
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

// ---- writer --------------------------------------------------------------------------------

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
  absl::Status Sync() override;
  uint64_t size_bytes() const override { return size_; }

  // Puts `bytes` behind what is there, or leaves the file as it was.
  absl::Status WriteWhole(std::string_view bytes);
  // Cuts off whatever lies behind the last whole frame.
  absl::Status CutBack();

 private:
  void BuildFrame(FrameType type, std::string_view payload);
  bool Compress(std::string_view payload);

  std::string path_;
  std::unique_ptr<File> file_;
  FramedLogOptions options_;
  uint64_t size_;           // up to the end of the last whole frame
  bool sync_folder_;        // the file's name is not yet durable
  bool tail_torn_ = false;  // a failed write left bytes behind size_ that could not be cut off
  std::string frame_;
  ZSTD_CCtx* zstd_ = nullptr;
};

absl::Status Writer::Append(FrameType type, std::string_view payload) {
  if (payload.size() > Limit(options_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": payload: expected at most ", Limit(options_), " bytes, found ", payload.size()));
  }
  BuildFrame(type, payload);
  return WriteWhole(frame_);
}

absl::Status Writer::WriteWhole(std::string_view bytes) {
  if (tail_torn_) {
    if (absl::Status cut = CutBack(); !cut.ok()) return cut;
  }
  const int error = WriteAt(file_->fd(), size_, bytes.data(), bytes.size());
  if (error != 0) {
    tail_torn_ = true;
    CutBack().IgnoreError();  // tried again by the next append; readers see a torn tail until then
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

void Writer::BuildFrame(FrameType type, std::string_view payload) {
  FrameHeader h;
  h.size = static_cast<uint32_t>(payload.size());
  h.type = static_cast<uint8_t>(type);
  if (options_.compress && payload.size() >= kCompressFrom && Compress(payload)) {
    h.codec = kZstd;
  } else {
    frame_.resize(kFrameHeaderSize + payload.size());
    if (!payload.empty()) {
      std::memcpy(frame_.data() + kFrameHeaderSize, payload.data(), payload.size());
    }
  }
  h.stored = static_cast<uint32_t>(frame_.size() - kFrameHeaderSize);
  h.payload_checksum = Crc32c(frame_.data() + kFrameHeaderSize, h.stored);
  Encode(h, frame_.data());
}

// The compressed payload behind room for the header; false when that would not be smaller.
bool Writer::Compress(std::string_view payload) {
  if (zstd_ == nullptr) zstd_ = ZSTD_createCCtx();
  if (zstd_ == nullptr) return false;
  frame_.resize(kFrameHeaderSize + ZSTD_compressBound(payload.size()));
  const size_t n =
      ZSTD_compressCCtx(zstd_, frame_.data() + kFrameHeaderSize, frame_.size() - kFrameHeaderSize,
                        payload.data(), payload.size(), kZstdLevel);
  if (ZSTD_isError(n) != 0 || n >= payload.size()) return false;
  frame_.resize(kFrameHeaderSize + n);
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

  // A second descriptor: the scan owns its own.
  absl::StatusOr<std::unique_ptr<File>> scanned = OpenFile(path, O_RDONLY);
  if (!scanned.ok()) return scanned.status();
  Reader scan(*std::move(scanned), options);
  if (absl::Status started = scan.Start(path); !started.ok()) return started;
  FramedLogReader::Result result;
  do {
    result = scan.Skip();
  } while (result == FramedLogReader::Result::kFrame);
  if (result == FramedLogReader::Result::kDamaged) {
    return absl::DataLossError(absl::StrCat(path, ": ", scan.error()));
  }

  const uint64_t size = scan.offset();
  auto writer = std::make_unique<Writer>(path, *std::move(file), options, size, size == 0);
  if (absl::Status cut = writer->CutBack(); !cut.ok()) return cut;
  if (size == 0) {
    const auto header = FileHeader();
    absl::Status written = writer->WriteWhole(std::string_view(header.data(), header.size()));
    if (!written.ok()) return written;
  }
  return writer;
}

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

}  // namespace plumbline
