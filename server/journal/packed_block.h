// Entries of the journal, many at once, in a third of their bytes: what series say is written
// column by column as the store writes its tiles (server/store/plane_codec.h), everything else in
// one zstd frame. Every byte of every entry comes back.
//
// A kJournalPacked frame, little-endian: form (u32: 1), entries (u32), bytes of their payloads
// (u32), bytes of the text (u32), bytes of its zstd frame (u32), that frame, then the columns, each
// its size (u32) and its planes. Text: of each entry its frame type (128 more: its values are cut
// out) and the bytes that it has without them (varint); then those bytes of all. Rows of one set
// and width, in order of (set, width), belong together, sorted by stream and source: so a column
// goes on where the same rank's step before ended. Few rows are one column of all their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/framed_log.h"

namespace plumbline::server {

// A longer entry stays a frame of its own, and a block with so much is full.
inline constexpr size_t kMostPackedEntry = size_t{8} << 20;
inline constexpr size_t kFullBlock = size_t{4} << 20;
// No block has more: who says so lies.
inline constexpr size_t kMostBlock = kMostPackedEntry + kFullBlock;

// Not thread-safe.
class BlockPacker {
 public:
  BlockPacker();
  ~BlockPacker();
  // An entry's frame. At most kMostPackedEntry, and no more once full.
  void Add(FrameType type, std::string_view payload);
  size_t bytes() const;  // of the payloads added
  bool full() const { return bytes() >= kFullBlock; }
  // The payload of a kJournalPacked frame of what was added, read back and compared; begins anew.
  // False: it does not come back as it was. Throws bad_alloc.
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
  // False: `block` is none: *why. What it says of itself is believed up to kMostBlock.
  bool Open(std::string_view block, std::string* why);
  // False: there are no more. *payload holds until the next Open.
  bool Next(FrameType* type, std::string_view* payload);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;  // made by the first Open: most readers meet no block
};

}  // namespace plumbline::server
