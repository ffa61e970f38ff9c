// Finds the positions of the members of a zip archive in its file. Returns positions of stored
// members, never copies. Inflates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct ZipMember {
  std::string name;
  uint64_t begin = 0;  // position of its data in the file
  uint64_t size = 0;   // size in bytes, as stored
  uint64_t head = 0;   // position of its local header
  uint32_t crc = 0;    // CRC of its data, from the directory
  // The reason why its data cannot be read in place, or "".
  std::string unreadable;

  uint64_t end() const { return begin + size; }
};

// The members, sorted by name, each once. A member can be read in place, or has the reason why it
// cannot.
struct ZipArchive {
  std::vector<ZipMember> members;  // sorted by name

  // Returns nullptr if there is no member with this name.
  const ZipMember* Find(std::string_view name) const;
};

struct ZipLimits {
  uint64_t directory = 64u << 20;  // bytes of the central directory
  size_t members = 1u << 19;
  size_t name = 4096;  // limit of bytes of a name
};

// Reads the archive in the part [begin, begin + size) of a file, usually the whole file. Member
// positions are relative to the file. Refuses, with the offset and the expected content: a
// directory that is truncated, damaged or over a limit; members that overlap, extend beyond the
// file or have another name in their local header; names that are absolute, contain ".." or are
// repeated; archives of several disks. Deflated and encrypted members are `unreadable`. Memory: the
// directory's bytes and about 100 bytes per member.
std::optional<Problem> ReadZip(const InputFile& file, uint64_t begin, uint64_t size,
                               ZipArchive* archive, const ZipLimits& limits = {});
std::optional<Problem> ReadZip(const InputFile& file, ZipArchive* archive);

}  // namespace plumbline::audit
