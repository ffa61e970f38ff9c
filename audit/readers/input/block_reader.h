// Reads a file in large blocks, and gives views of its bytes without a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "audit/readers/input/byte_stream.h"

namespace plumbline::audit {

// Memory: a block, and twice the longest requested view, as far as the file has its bytes. Not
// thread-safe. If the file grows, continues to read it.
class BlockReader {
 public:
  explicit BlockReader(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  // Returns the next `size` bytes, or all remaining bytes if there are fewer. Valid until the next
  // call.
  std::string_view Peek(size_t size) {
    if (end_ - begin_ < size) Fill(size);
    return {buffer_.data() + begin_, std::min(size, end_ - begin_)};
  }
  // Skips bytes that Peek has returned.
  void Skip(size_t size) {
    begin_ += size;
    offset_ += size;
  }
  uint64_t offset() const { return offset_; }  // offset of the next byte in the decompressed stream
  const ByteStream& stream() const { return *stream_; }

 private:
  void Fill(size_t size);

  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // range in buffer_ of the bytes that were read and not skipped
  uint64_t offset_ = 0;
};

// Opens a file. If it cannot be opened, adds a problem to the report and returns nullptr.
std::unique_ptr<BlockReader> OpenBlocks(InputReport* report);

}  // namespace plumbline::audit
