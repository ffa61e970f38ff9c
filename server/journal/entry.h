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
// When a segment is complete, it is written again in a third of its bytes (segment_packer.h): its
// header then has another schema, and kJournalPacked frames (packed_block.h) hold its entries.
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

// Limit of a frame of the journal: larger than any message that gRPC may accept.
inline constexpr uint64_t kMaxJournalFrame = uint64_t{2} << 30;  // bytes
inline FramedLogOptions JournalLogOptions() {
  FramedLogOptions options;
  options.compress = true;  // only frames that allow it
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
  // Returns false if the payload is too short for an entry.
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

// An entry that was read back.
struct StoredEntry {
  FrameType type{};
  EntryPrefix prefix;
  std::string payload;  // with the prefix

  std::string_view body() const { return std::string_view(payload).substr(EntryPrefix::kSize); }
};

// Bytes from the network, in pieces, shared and not copied.
class WireBytes {
 public:
  WireBytes() = default;
  explicit WireBytes(std::string_view bytes) : slices_{grpc::Slice(bytes.data(), bytes.size())} {}
  // Holds `buffer` without its first `skip` bytes.
  WireBytes(const grpc::ByteBuffer& buffer, size_t skip);

  size_t size() const;
  void AddTo(std::vector<std::string_view>* parts) const;

 private:
  std::vector<grpc::Slice> slices_;
};

// A series set of one stream: its id, and the set as field 8 of a serialized v1::Batch.
using SetRecord = std::pair<uint64_t, std::string>;

// A rank of a stream: a serialized v1::Source with only run, role and rank.
using SourceRecord = std::string;

// An entry that a caller passes to the journal, which numbers it.
struct JournalEntry {
  FrameType type = FrameType::kJournalBatch;
  uint64_t stream_id = 0;
  uint64_t sequence = 0;
  WireBytes body;
  std::vector<SetRecord> sets;        // that the body declares
  std::vector<SourceRecord> sources;  // ranks of the stream that are new since its last entry
};

}  // namespace plumbline::server
