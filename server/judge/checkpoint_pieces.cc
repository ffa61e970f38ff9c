#include "server/judge/checkpoint_pieces.h"

#include <cstdint>
#include <cstring>

namespace plumbline::server {
namespace {

constexpr size_t kMostOfAPiece = 1 << 20;

// Precedes a piece: the number of bytes of its part's name (0 for the head), and of the rest.
struct Lengths {
  uint32_t name = 0, bytes = 0;
};

struct HeadNumbers {
  uint64_t entry = 0, event = 0;
  int64_t unix_ns = 0;
};

std::string_view BytesOf(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

}  // namespace

void CheckpointSender::Head(uint64_t entry, uint64_t event, int64_t unix_ns) {
  const HeadNumbers numbers{entry, event, unix_ns};
  const Lengths lengths{0, sizeof numbers};
  write_(BytesOf(&lengths, sizeof lengths));
  write_(BytesOf(&numbers, sizeof numbers));
}

void CheckpointSender::Part(std::string_view name, std::string_view bytes) {
  do {
    const std::string_view piece = bytes.substr(0, kMostOfAPiece);
    bytes.remove_prefix(piece.size());
    const Lengths lengths{static_cast<uint32_t>(name.size()), static_cast<uint32_t>(piece.size())};
    write_(BytesOf(&lengths, sizeof lengths));
    write_(name);
    write_(piece);
  } while (!bytes.empty());
}

void CheckpointReceiver::Take(std::string_view bytes) {
  rest_.append(bytes);
  size_t at = 0;
  for (;;) {
    const std::string_view left = std::string_view(rest_).substr(at);
    Lengths lengths;
    if (left.size() < sizeof lengths) break;
    std::memcpy(&lengths, left.data(), sizeof lengths);
    const size_t size = sizeof lengths + size_t{lengths.name} + lengths.bytes;
    if (left.size() < size) break;
    const std::string_view content = left.substr(sizeof lengths + lengths.name, lengths.bytes);
    HeadNumbers numbers;
    if (lengths.name > 0) {
      sink_->Part(left.substr(sizeof lengths, lengths.name), content);
    } else if (content.size() == sizeof numbers) {
      std::memcpy(&numbers, content.data(), sizeof numbers);
      sink_->Head(numbers.entry, numbers.event, numbers.unix_ns);
    }
    at += size;
  }
  rest_.erase(0, at);
}

}  // namespace plumbline::server
