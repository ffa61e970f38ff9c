// Lines of a client, however long it makes them.
#pragma once

#include <cstddef>
#include <string>

namespace plumbline::audit {

// Holds at most `most_bytes` of a line. Not thread-safe.
class McpLineReader {
 public:
  enum class Got { kLine, kTooLong, kEnd };
  McpLineReader(int fd, size_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {}

  // The next line without its end ("\n" or "\r\n"). kTooLong: it was skipped. A last line without
  // an end counts.
  Got Next(std::string* line);

 private:
  bool Fill();

  const int fd_;
  const size_t most_bytes_;
  std::string buffer_;
  size_t begin_ = 0;    // of what was not yet given out
  size_t scanned_ = 0;  // no line end before here
  bool skipping_ = false;
};

}  // namespace plumbline::audit
