#include "audit/readers/input/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace plumbline::audit {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr int kGzip = 15 + 16;       // zlib's window bits for gzip
constexpr int kMostZstdWindow = 27;  // log2 of bytes; `zstd --ultra -22` needs this size

bool IsGzip(std::string_view head) {
  return head.size() >= 3 && head.substr(0, 3) == std::string_view("\x1f\x8b\x08", 3);
}

// Recognises a frame, or a skippable frame, which may come first.
bool IsZstd(std::string_view head) {
  if (head.size() < 4) return false;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(head[i]); };
  const bool frame = byte(0) == 0x28 && byte(1) == 0xb5 && byte(2) == 0x2f && byte(3) == 0xfd;
  const bool skippable =
      (byte(0) & 0xf0) == 0x50 && byte(1) == 0x2a && byte(2) == 0x4d && byte(3) == 0x18;
  return frame || skippable;
}

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(InputFile file) : ByteStream(std::move(file)) {}

 protected:
  size_t Produce(char* data, size_t size) override { return ReadFile(data, size); }
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(InputFile file) : ByteStream(std::move(file)) {
    ready_ = inflateInit2(&z_, kGzip) == Z_OK;
  }
  ~GzipStream() override {
    if (ready_) inflateEnd(&z_);
  }

 protected:
  size_t Produce(char* data, size_t size) override {
    if (!ready_) {
      Fail("not enough memory to decompress", true);
      return 0;
    }
    z_.next_out = reinterpret_cast<Bytef*>(data);
    z_.avail_out = static_cast<uInt>(std::min(size, kChunk));
    const uInt room = z_.avail_out;
    while (z_.avail_out == room && !problem()) {
      if (z_.avail_in == 0 && !Fill()) break;
      const int result = inflate(&z_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        in_member_ = false;
        if (z_.avail_in == 0 && !Fill()) break;
        if (!NextMember()) break;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        Fail(std::string("expected gzip data, found: ") + (z_.msg != nullptr ? z_.msg : "damage"),
             true);
      }
    }
    return room - z_.avail_out;
  }

 private:
  bool Fill() {
    z_.next_in = reinterpret_cast<Bytef*>(in_.data());
    z_.avail_in = static_cast<uInt>(ReadFile(in_.data(), in_.size()));
    if (z_.avail_in > 0) return true;
    if (in_member_ && !problem())
      Fail("expected the end of the gzip data, found the end of the file", false);
    return false;
  }

  // Zeros after the last member are padding of tapes and block devices.
  bool NextMember() {
    if (*z_.next_in == 0) {
      z_.avail_in = 0;
      return false;
    }
    in_member_ = true;
    return inflateReset(&z_) == Z_OK;
  }

  z_stream z_ = {};
  std::array<char, kChunk> in_;
  bool ready_ = false;
  bool in_member_ = true;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(InputFile file)
      : ByteStream(std::move(file)), context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    if (context_ != nullptr)
      ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMostZstdWindow);
  }

 protected:
  size_t Produce(char* data, size_t size) override {
    if (context_ == nullptr) {
      Fail("not enough memory to decompress", true);
      return 0;
    }
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos == 0 && !problem()) {
      if (input_.pos == input_.size) {
        input_ = {in_.data(), ReadFile(in_.data(), in_.size()), 0};
        if (input_.size == 0 && !pending_) break;
      }
      const bool at_end = input_.size == 0;
      const size_t result = ZSTD_decompressStream(context_.get(), &out, &input_);
      if (ZSTD_isError(result)) {
        Fail(std::string("expected zstd data, found: ") + ZSTD_getErrorName(result), true);
      } else {
        pending_ = result != 0;  // the result is 0 if the frame is complete and flushed
        if (at_end && out.pos == 0 && pending_)
          Fail("expected the end of the zstd data, found the end of the file", false);
      }
    }
    return out.pos;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
  std::array<char, kChunk> in_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool pending_ = false;
};

// Converts UTF-16 with its mark, as PowerShell writes redirected output, to UTF-8. Invalid
// characters become '?'.
class Utf16Stream : public ByteStream {
 public:
  Utf16Stream(InputFile file, bool big) : ByteStream(std::move(file)), big_(big) {}

 protected:
  size_t Produce(char* data, size_t size) override {
    constexpr size_t kMostBytes = 4;  // bytes of one character
    size_t made = 0;
    while (made + kMostBytes <= size) {
      uint32_t unit = 0;
      if (!NextUnit(&unit)) break;
      if (unit == 0xFEFF && first_) {
        first_ = false;
        continue;
      }
      first_ = false;
      made += Append(CodeOf(unit), data + made);
    }
    return made;
  }

 private:
  bool NextUnit(uint32_t* unit) {
    if (kept_) {
      *unit = *kept_;
      kept_.reset();
      return true;
    }
    if (end_ - at_ < 2) {
      if (end_ > at_) in_[0] = in_[at_];
      end_ -= at_;
      at_ = 0;
      end_ += ReadFile(in_.data() + end_, in_.size() - end_);
      if (end_ < 2) return false;
    }
    const auto first = static_cast<unsigned char>(in_[at_]);
    const auto second = static_cast<unsigned char>(in_[at_ + 1]);
    at_ += 2;
    *unit = big_ ? 256u * first + second : 256u * second + first;
    return true;
  }

  uint32_t CodeOf(uint32_t unit) {
    const bool high = unit >= 0xD800 && unit < 0xDC00;
    if (!high) return unit >= 0xDC00 && unit < 0xE000 ? '?' : unit;
    uint32_t low = 0;
    if (!NextUnit(&low)) return '?';
    if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    kept_ = low;
    return '?';
  }

  static size_t Append(uint32_t code, char* to) {
    const auto byte = [](uint32_t value) { return static_cast<char>(value); };
    if (code < 0x80) {
      to[0] = byte(code);
      return 1;
    }
    const size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; --i) {
      to[i] = byte(0x80 | (code & 0x3F));
      code >>= 6;
    }
    to[0] = byte((size == 2 ? 0xC0u : size == 3 ? 0xE0u : 0xF0u) | code);
    return size;
  }

  const bool big_;
  bool first_ = true;
  std::array<char, kChunk> in_;
  size_t at_ = 0, end_ = 0;
  std::optional<uint32_t> kept_;  // the first unit after an incomplete character
};

bool IsUtf16(std::string_view head) {
  return head.size() >= 2 && (head.substr(0, 2) == "\xFF\xFE" || head.substr(0, 2) == "\xFE\xFF") &&
         (head.size() < 4 || head[2] != 0 || head[3] != 0);
}

}  // namespace

size_t ByteStream::Read(char* data, size_t size) {
  if (problem_) return 0;
  const size_t got = Produce(data, size);
  given_ += got;
  if (problem_) problem_->offset = given_;
  return got;
}

size_t ByteStream::ReadFile(char* data, size_t size) {
  absl::StatusOr<size_t> got = file_.ReadSome(file_at_, data, size);
  if (!got.ok()) {
    Fail(std::string(got.status().message()), true);
    return 0;
  }
  file_at_ += *got;
  return *got;
}

void ByteStream::Fail(std::string text, bool error) {
  if (!problem_) problem_ = Problem{given_, std::move(text), error};
}

std::unique_ptr<ByteStream> ByteStream::Open(InputFile file) {
  char head[4];
  const absl::StatusOr<size_t> got = file.ReadSome(0, head, sizeof head);
  const std::string_view start(head, got.ok() ? *got : 0);
  if (IsGzip(start)) return std::make_unique<GzipStream>(std::move(file));
  if (IsZstd(start)) return std::make_unique<ZstdStream>(std::move(file));
  if (IsUtf16(start)) return std::make_unique<Utf16Stream>(std::move(file), start[0] == '\xFE');
  return std::make_unique<PlainStream>(std::move(file));
}

bool IsCompressed(std::string_view head) { return IsGzip(head) || IsZstd(head) || IsUtf16(head); }

}  // namespace plumbline::audit
