#include "audit/readers/input/line_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plumbline::audit {
namespace {

constexpr size_t kRead = 256 << 10;

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteStream> stream, size_t most, Rewrite rewrite)
    : stream_(std::move(stream)), most_(most), rewrite_(std::move(rewrite)) {}

// Frees buffer space by moving the unread rest to the front, or doubles the buffer. Then reads.
// Returns false at the end.
bool LineReader::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    buffer_at_ += begin_;
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kRead) buffer_.resize(std::max(2 * buffer_.size(), end_ + kRead));
  const size_t got = stream_->Read(buffer_.data() + end_, buffer_.size() - end_);
  if (rewrite_) rewrite_(buffer_.data() + end_, got);
  end_ += got;
  return got > 0;
}

bool LineReader::Next(Line* line) {
  size_t searched = begin_;
  *line = {};
  line->number = ++number_;
  line->offset = buffer_at_ + begin_;
  while (true) {
    const char* start = buffer_.data();
    const auto* newline =
        static_cast<const char*>(std::memchr(start + searched, '\n', end_ - searched));
    if (newline != nullptr) {
      const auto at = static_cast<size_t>(newline - start);
      line->too_long |= at - begin_ > most_;
      if (!line->too_long) line->text = std::string_view(start + begin_, at - begin_);
      begin_ = at + 1;
      return true;
    }
    if (line->too_long || end_ - begin_ > most_) {
      line->too_long = true;
      begin_ = end_;
    }
    const size_t length = end_ - begin_;
    if (!Fill()) {
      if (!line->too_long) line->text = std::string_view(buffer_.data() + begin_, length);
      line->ended = false;
      begin_ = end_;
      return length > 0 || line->too_long;
    }
    searched = begin_ + length;
  }
}

std::string FirstBytes(std::string_view path, std::string_view head, size_t most) {
  absl::StatusOr<InputFile> file = InputFile::Open(std::string(path));
  if (!file.ok()) return IsCompressed(head) ? "" : std::string(head);
  const std::unique_ptr<ByteStream> stream = ByteStream::Open(std::move(*file));
  std::string bytes(most, '\0');
  size_t size = 0;
  while (size < most) {
    const size_t got = stream->Read(bytes.data() + size, most - size);
    if (got == 0) break;
    size += got;
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace plumbline::audit
