#include "audit/readers/scalars/text_lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr size_t kTextRead = 1 << 20;

const char* Find(const char* from, const char* to, char c) {
  return static_cast<const char*>(std::memchr(from, c, static_cast<size_t>(to - from)));
}

}  // namespace

TextLines::TextLines(std::unique_ptr<ByteStream> stream, size_t most, LineEnds ends)
    : stream_(std::move(stream)), most_(most), ends_(ends) {}

// Moves what is left to the front; of a line that is too long only its place is kept.
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
  if (buffer_.size() < end_ + kTextRead) buffer_.resize(end_ + kTextRead);
}

bool TextLines::Fill() {
  MakeRoom();
  const size_t full = end_ + kTextRead;
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
  // Behind many short lines that returns end there may be one newline: it is looked for once.
  if (newline_ == kUnknown || newline_ < searched_) {
    const char* next = Find(from, to, '\n');
    newline_ = next != nullptr ? static_cast<size_t>(next - start) : end_;
  }
  const char* stop = newline_ < end_ ? start + newline_ : nullptr;
  if (ends_ == LineEnds::kNewlineOrReturn) {
    const char* back = Find(from, stop != nullptr ? stop : to, '\r');
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

TextPointFile::TextPointFile(InputReport* report, std::unique_ptr<ByteStream> stream,
                             size_t most_line, LineEnds ends)
    : report_(report), lines_(std::move(stream), most_line, ends) {}

bool TextPointFile::Read(PointSink* sink) {
  if (!lines_.Fill()) {
    if (lines_.stream().problem() && lines_.stream().problem()->error) ReportStream();
    Pause(sink);
    return false;
  }
  for (TextLine line; lines_.Next(&line);) Take(line, sink);
  return true;
}

void TextPointFile::Close(PointSink* sink) {
  while (Read(sink)) {
  }
  TextLine line;
  if (lines_.Rest(&line)) Take(line, sink);
  ReportStream();
  Finish(sink);
}

void TextPointFile::ReportStream() {
  const std::optional<Problem>& problem = lines_.stream().problem();
  if (!problem || stream_reported_) return;
  stream_reported_ = true;
  report_->Add(problem->offset, problem->text, problem->error);
}

std::unique_ptr<ByteStream> OpenText(InputReport* report) {
  absl::StatusOr<InputFile> file = InputFile::Open(report->path);
  if (file.ok()) return ByteStream::Open(std::move(*file));
  report->Add(0, std::string(file.status().message()));
  return nullptr;
}

std::string PlainName(std::string_view name) {
  constexpr size_t kMostName = 200;
  std::string plain(name.substr(0, kMostName));
  while (plain.size() == kMostName && !plain.empty() && (plain.back() & 0x80) != 0)
    plain.pop_back();  // the cut may lie within a character
  const bool utf8 = IsUtf8(plain);
  for (char& c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) c = '?';
  }
  return plain;
}

}  // namespace plumbline::audit
