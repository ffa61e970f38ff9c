// Packs many entries of the journal into a third of their bytes. Values of series are written
// column by column like the store's tiles (server/store/plane_codec.h), all other bytes in one zstd
// frame. Reading returns every byte of every entry.
//
// A kJournalPacked frame, little-endian: form (u32: 1), entries (u32), bytes of their payloads
// (u32), bytes of the text (u32), bytes of its zstd frame (u32), that frame, then the columns, each
// its size (u32) and its planes. The text holds, for each entry, its frame type (plus 128 if its
// values are cut out) and its number of bytes without them (varint); then those bytes of all
// entries. Rows of one set and width, in order of (set, width), are one group, sorted by stream and
// source, so that a column continues with the next step of the same rank. A group of few rows is
// one column of all their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/framed_log.h"

namespace plumbline::server {

// A longer entry stays a separate frame. A block with kFullBlock bytes is full.
inline constexpr size_t kMostPackedEntry = size_t{8} << 20;
inline constexpr size_t kFullBlock = size_t{4} << 20;
// Limit of a block. A block that claims more is damaged or hostile.
inline constexpr size_t kMostBlock = kMostPackedEntry + kFullBlock;

// Not thread-safe.
class BlockPacker {
 public:
  BlockPacker();
  ~BlockPacker();
  // Adds an entry's frame of at most kMostPackedEntry bytes, unless the block is full.
  void Add(FrameType type, std::string_view payload);
  size_t bytes() const;  // of the payloads added
  bool full() const { return bytes() >= kFullBlock; }
  // Writes the payload of a kJournalPacked frame, reads it back, compares it, and begins a new
  // block. Returns false if it differs. Throws bad_alloc.
  bool Finish(std::string* out);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

// Not thread-safe.
class BlockReader {
 public:
  BlockReader();
  ~BlockReader();
  // Opens a block. Returns false and sets *why if it is invalid. Sizes in the block are accepted up
  // to kMostBlock.
  bool Open(std::string_view block, std::string* why);
  // Returns false if there are no more entries. *payload is valid until the next Open.
  bool Next(FrameType* type, std::string_view* payload);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;  // made by the first Open, because most readers meet no block
};

}  // namespace plumbline::server
