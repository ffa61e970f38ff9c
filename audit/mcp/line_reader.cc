#include "audit/mcp/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace plumbline::audit {

bool McpLineReader::Fill() {
  char bytes[65536];
  ssize_t got = 0;
  do {
    got = read(fd_, bytes, sizeof bytes);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

McpLineReader::Got McpLineReader::Next(std::string* line) {
  for (;;) {
    const size_t end = buffer_.find('\n', std::max(scanned_, begin_));
    if (end != std::string::npos) {
      const bool skipped = skipping_ || end - begin_ > most_bytes_;
      *line = skipped ? "" : buffer_.substr(begin_, end - begin_);
      begin_ = scanned_ = end + 1;
      skipping_ = false;
      if (skipped) return Got::kTooLong;
      if (line->ends_with('\r')) line->pop_back();
      return Got::kLine;
    }
    scanned_ = buffer_.size();
    if (buffer_.size() - begin_ > most_bytes_) {  // the remaining bytes are not kept
      skipping_ = true;
      begin_ = buffer_.size();
    }
    if (Fill()) continue;
    if (begin_ == buffer_.size() && !skipping_) return Got::kEnd;
    const bool skipped = skipping_;
    *line = buffer_.substr(begin_);
    begin_ = scanned_ = buffer_.size();
    skipping_ = false;
    return skipped ? Got::kTooLong : Got::kLine;
  }
}

}  // namespace plumbline::audit
