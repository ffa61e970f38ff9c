#include "audit/readers/input/block_reader.h"

#include <cstring>

#include "audit/readers/input/file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kBlockBytes = 512 << 10;

}  // namespace

void BlockReader::Fill(size_t size) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // The buffer grows with the bytes that were read, not with a length that the file states.
  while (end_ < size) {
    if (buffer_.size() - end_ < kBlockBytes / 2)
      buffer_.resize(std::max(kBlockBytes, 2 * buffer_.size()));
    const size_t got = stream_->Read(buffer_.data() + end_, buffer_.size() - end_);
    if (got == 0) return;
    end_ += got;
  }
}

std::unique_ptr<BlockReader> OpenBlocks(InputReport* report) {
  absl::StatusOr<InputFile> file = InputFile::Open(report->path);
  if (!file.ok()) {
    report->Add(0, std::string(file.status().message()));
    return nullptr;
  }
  return std::make_unique<BlockReader>(ByteStream::Open(*std::move(file)));
}

}  // namespace plumbline::audit
