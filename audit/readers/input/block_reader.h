// A file's bytes in big blocks, looked at in place.
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

// Memory: a block, and twice the longest view that was asked for and that the file could fill. Not
// thread-safe. A file that grows is read on.
class BlockReader {
 public:
  explicit BlockReader(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  // The next `size` bytes, or all there are where that is fewer. Valid until the next call.
  std::string_view Peek(size_t size) {
    if (end_ - begin_ < size) Fill(size);
    return {buffer_.data() + begin_, std::min(size, end_ - begin_)};
  }
  // Past bytes that Peek has shown.
  void Skip(size_t size) {
    begin_ += size;
    offset_ += size;
  }
  uint64_t offset() const { return offset_; }  // of the next byte, in the decompressed stream
  const ByteStream& stream() const { return *stream_; }

 private:
  void Fill(size_t size);

  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // of what was read and not skipped
  uint64_t offset_ = 0;
};

// The file's bytes; nullptr, and a problem in the report, where it cannot be opened.
std::unique_ptr<BlockReader> OpenBlocks(InputReport* report);

}  // namespace plumbline::audit
