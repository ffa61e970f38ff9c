// Entries of the journal and the frames that hold them.
//
// DATA/journal/<number of its first entry, 20 digits>.plj is a framed log (base/framed_log.h):
//
//   kJournalHeader   v1::JournalHeader, once
//   kJournalStreams  v1::JournalStreams, any number, before the entries
//   entries          kJournalBatch: a v1::Batch as it came (sequence 0: series sets alone)
//                    kJournalSkip:  v1::JournalSkip
//                    kJournalEvent: v1::JournalEvent
//
// Once no more is written to it, a segment is written again in a third of its bytes
// (segment_packer.h): its header then has another schema, and kJournalPacked frames
// (packed_block.h) hold its entries.
//
// The payload of an entry starts with 32 bytes, little-endian: number u64, time of receipt in
// nanoseconds since 1970 i64, stream id u64, sequence u64. Numbers count from 1 without gaps: a gap
// is a loss. An entry whose number the next segment has too is void (its commit failed half-way).
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/framed_log.h"

namespace plumbline::server {

// What a frame of the journal may hold: whatever gRPC was told to let in, and more.
inline constexpr uint64_t kMaxJournalFrame = uint64_t{2} << 30;  // bytes
inline FramedLogOptions JournalLogOptions() {
  FramedLogOptions options;
  options.compress = true;  // of frames that allow it
  options.max_payload = kMaxJournalFrame;
  return options;
}

struct EntryPrefix {
  static constexpr size_t kSize = 32;

  uint64_t number = 0;
  int64_t unix_ns = 0;
  uint64_t stream_id = 0;
  uint64_t sequence = 0;

  std::array<char, kSize> Encode() const {
    std::array<char, kSize> out;
    static_assert(sizeof(EntryPrefix) == kSize && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    std::memcpy(out.data(), this, kSize);
    return out;
  }
  // False when the payload is too short to be an entry's.
  static bool Decode(std::string_view payload, EntryPrefix* out) {
    if (payload.size() < kSize) return false;
    std::memcpy(out, payload.data(), kSize);
    return true;
  }
};

inline bool IsEntry(FrameType type) {
  return type == FrameType::kJournalBatch || type == FrameType::kJournalSkip ||
         type == FrameType::kJournalEvent;
}

// An entry as it was read back.
struct StoredEntry {
  FrameType type{};
  EntryPrefix prefix;
  std::string payload;  // prefix included

  std::string_view body() const { return std::string_view(payload).substr(EntryPrefix::kSize); }
};

// Bytes as they came from the network, in pieces, shared and not copied.
class WireBytes {
 public:
  WireBytes() = default;
  explicit WireBytes(std::string_view bytes) : slices_{grpc::Slice(bytes.data(), bytes.size())} {}
  // `buffer` without its first `skip` bytes.
  WireBytes(const grpc::ByteBuffer& buffer, size_t skip);

  size_t size() const;
  void AddTo(std::vector<std::string_view>* parts) const;

 private:
  std::vector<grpc::Slice> slices_;
};

// Series sets of one stream: id, and the set as field 8 of a serialized v1::Batch.
using SetRecord = std::pair<uint64_t, std::string>;

// For whom a stream speaks: a serialized v1::Source with run, role and rank alone.
using SourceRecord = std::string;

// What a caller hands to the journal, which numbers it.
struct JournalEntry {
  FrameType type = FrameType::kJournalBatch;
  uint64_t stream_id = 0;
  uint64_t sequence = 0;
  WireBytes body;
  std::vector<SetRecord> sets;        // that the body declares
  std::vector<SourceRecord> sources;  // that the stream speaks for since its last entry
};

}  // namespace plumbline::server
