#include "audit/readers/scalars/text_file.h"

#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

TextPointFile::TextPointFile(InputReport* report, std::unique_ptr<ByteStream> stream,
                             size_t most_line, LineEnds ends)
    : report_(report), lines_(std::move(stream), most_line, ends) {}

bool TextPointFile::Read(PointSink* sink) {
  if (!lines_.Fill()) {
    if (lines_.stream().problem() && lines_.stream().problem()->error) ReportStream();
    Pause(sink);
    return false;
  }
  for (TextLine line; lines_.Next(&line);) TakeLine(line, sink);
  return true;
}

void TextPointFile::Close(PointSink* sink) {
  while (Read(sink)) {
  }
  TextLine line;
  if (lines_.Rest(&line)) TakeLine(line, sink);
  ReportZeros();
  ReportStream();
  Finish(sink);
}

void TextPointFile::TakeLine(TextLine line, PointSink* sink) {
  if (line.text.find('\0') == std::string_view::npos) return Take(line, sink);
  const size_t begin = line.text.find_first_not_of('\0');
  // The result is 0 if there are only zeros.
  const size_t end = line.text.find_last_not_of('\0') + 1;
  if (!line.ended && end < line.text.size()) zeros_at_ = line.offset + end;
  if (end == 0) return;
  line.offset += begin;
  line.text = line.text.substr(begin, end - begin);
  if (line.text.find('\0') == std::string_view::npos) return Take(line, sink);
  if (zero_lines_++ == 0) first_zero_line_ = line.offset;
}

void TextPointFile::ReportZeros() {
  if (zero_lines_ > 0) {
    report_->Add(first_zero_line_,
                 "expected lines of text, found " + std::to_string(zero_lines_) +
                     " with zero bytes: they are ignored",
                 ZerosAreDamage());
  }
  if (zeros_at_) {
    report_->Add(*zeros_at_,
                 "expected the rest of the file, found only zero bytes up to its end: it was not "
                 "written completely",
                 false);
  }
}

void TextPointFile::ReportStream() {
  const std::optional<Problem>& problem = lines_.stream().problem();
  if (!problem || stream_reported_) return;
  stream_reported_ = true;
  report_->Add(problem->offset, problem->text, problem->error || CutIsDamage());
}

std::unique_ptr<ByteStream> OpenText(InputReport* report) {
  absl::StatusOr<InputFile> file = InputFile::Open(report->path);
  if (file.ok()) return ByteStream::Open(std::move(*file));
  report->Add(0, std::string(file.status().message()));
  return nullptr;
}

std::string PlainName(std::string_view name) {
  constexpr size_t kMostName = 1024;  // RunPoints uses 512 bytes of it
  std::string plain(name.substr(0, kMostName));
  while (plain.size() == kMostName && !plain.empty() && (plain.back() & 0x80) != 0)
    plain.pop_back();  // removes a part of a character at the cut
  const bool utf8 = IsUtf8(plain);
  for (char& c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) c = '?';
  }
  return plain;
}

}  // namespace plumbline::audit
