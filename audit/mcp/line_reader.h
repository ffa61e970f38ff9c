// Reads lines of any length from a client.
#pragma once

#include <cstddef>
#include <string>

namespace plumbline::audit {

// Keeps at most `most_bytes` of a line. Not thread-safe.
class McpLineReader {
 public:
  enum class Got { kLine, kTooLong, kEnd };
  McpLineReader(int fd, size_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {}

  // Reads the next line without its end ("\n" or "\r\n"). If the line is too long, skips it and
  // returns kTooLong. A last line without an end counts as a line.
  Got Next(std::string* line);

 private:
  bool Fill();

  const int fd_;
  const size_t most_bytes_;
  std::string buffer_;
  size_t begin_ = 0;    // of the bytes that were not returned yet
  size_t scanned_ = 0;  // no line end before this offset
  bool skipping_ = false;
};

}  // namespace plumbline::audit
