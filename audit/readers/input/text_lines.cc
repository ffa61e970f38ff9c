#include "audit/readers/input/text_lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plumbline::audit {
namespace {

const char* FindByte(const char* from, const char* to, char c) {
  return static_cast<const char*>(std::memchr(from, c, static_cast<size_t>(to - from)));
}

}  // namespace

TextLines::TextLines(std::unique_ptr<ByteStream> stream, size_t most, LineEnds ends, size_t read)
    : stream_(std::move(stream)), most_(most), ends_(ends), read_(read) {}

// Moves the unread rest to the front. If a line is too long, keeps only its offset.
void TextLines::MakeRoom() {
  if (end_ - begin_ > most_ && !skipping_) {
    skipping_ = true;
    skipped_at_ = buffer_at_ + begin_;
  }
  if (skipping_) begin_ = end_;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  buffer_at_ += begin_;
  end_ -= begin_;
  begin_ = 0;
  searched_ = end_;
  newline_ = kUnknown;
  if (buffer_.size() < end_ + read_) buffer_.resize(end_ + read_);
}

bool TextLines::Fill() {
  MakeRoom();
  const size_t full = end_ + read_;
  bool any = false;
  while (end_ < full) {
    const size_t got = stream_->Read(buffer_.data() + end_, full - end_);
    if (got == 0) break;
    end_ += got;
    any = true;
  }
  return any;
}

bool TextLines::Next(TextLine* line) {
  const char* start = buffer_.data();
  const char* from = start + searched_;
  const char* to = start + end_;
  // Many short lines that end in carriage returns may precede one newline: search for it once.
  if (newline_ == kUnknown || newline_ < searched_) {
    const char* next = FindByte(from, to, '\n');
    newline_ = next != nullptr ? static_cast<size_t>(next - start) : end_;
  }
  const char* stop = newline_ < end_ ? start + newline_ : nullptr;
  if (ends_ == LineEnds::kNewlineOrReturn) {
    const char* back = FindByte(from, stop != nullptr ? stop : to, '\r');
    if (back != nullptr) stop = back;
  }
  if (stop == nullptr) {
    searched_ = end_;
    return false;
  }
  const auto at = static_cast<size_t>(stop - start);
  *line = {std::string_view(start + begin_, at - begin_), buffer_at_ + begin_, true, false};
  if (skipping_ || line->text.size() > most_) {
    *line = {{}, skipping_ ? skipped_at_ : line->offset, true, true};
    skipping_ = false;
  } else if (line->text.ends_with('\r')) {
    line->text.remove_suffix(1);
  }
  begin_ = searched_ = at + 1;
  return true;
}

bool TextLines::Rest(TextLine* line) {
  if (begin_ == end_ && !skipping_) return false;
  const std::string_view text(buffer_.data() + begin_, end_ - begin_);
  const bool too_long = skipping_ || text.size() > most_;
  *line = {too_long ? std::string_view() : text, skipping_ ? skipped_at_ : buffer_at_ + begin_,
           false, too_long};
  begin_ = searched_ = end_;
  skipping_ = false;
  return true;
}

}  // namespace plumbline::audit
