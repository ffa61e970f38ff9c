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
// The frame header has a separate checksum, to distinguish a damaged length from a file that ends
// early. A tail is unfinished only if its frame header is cut, or is correct and states more bytes
// than the file has. A tail of zeros is unfinished too: file systems leave it after a host dies.
//
// Internal to the framed log.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/framed_log.h"

namespace plumbline::framed_log {

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

inline std::array<char, kFileHeaderSize> FileHeader() {
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

inline void Encode(const FrameHeader& h, char* at) {
  Put(at, h.stored);
  Put(at + 4, h.size);
  Put(at + 8, h.type);
  Put(at + 9, h.codec);
  Put(at + 10, h.reserved);
  Put(at + 12, h.payload_checksum);
  Put(at + 16, Crc32c(at, 16));
}

// Returns true if the header is undamaged, by the header's checksum.
inline bool Undamaged(const char* at) { return Get<uint32_t>(at + 16) == Crc32c(at, 16); }

inline FrameHeader Decode(const char* at) {
  return {Get<uint32_t>(at),    Get<uint32_t>(at + 4),  Get<uint8_t>(at + 8),
          Get<uint8_t>(at + 9), Get<uint16_t>(at + 10), Get<uint32_t>(at + 12)};
}

// Returns the limit of a payload: its length field is a u32, even if the caller allows more.
inline uint64_t Limit(const FramedLogOptions& options) {
  return std::min<uint64_t>(options.max_payload, std::numeric_limits<uint32_t>::max());
}

inline std::string Hex(uint32_t v) { return absl::StrCat("0x", absl::Hex(v, absl::kZeroPad8)); }

inline absl::Status SystemError(int error, const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": ", what));
}

inline std::string FolderOf(const std::string& path) {
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

inline absl::StatusOr<std::unique_ptr<File>> OpenFile(const std::string& path, int flags) {
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

// Reads up to `size` bytes; fewer only at the end of the file. Returns -1 with errno on failure.
inline ssize_t ReadAt(int fd, uint64_t offset, char* out, size_t size) {
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

// Writes all bytes, or returns the errno of the failure.
inline int WriteAt(int fd, uint64_t offset, const char* data, size_t size) {
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

}  // namespace plumbline::framed_log
