// Where the members of a zip archive lie in its file. Members that are stored are given as places,
// never as copies; nothing is inflated.
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
  uint64_t begin = 0;  // of its data, in the file
  uint64_t size = 0;   // bytes, as stored
  uint64_t head = 0;   // where its local header stands
  uint32_t crc = 0;    // of its data, as the directory says
  // Why its data cannot be read in place; empty: it can.
  std::string unreadable;

  uint64_t end() const { return begin + size; }
};

// The members that are read in place or say why not. By name, each once.
struct ZipArchive {
  std::vector<ZipMember> members;  // sorted by name

  // nullptr: none of this name.
  const ZipMember* Find(std::string_view name) const;
};

struct ZipLimits {
  uint64_t directory = 64u << 20;  // bytes of the central directory
  size_t members = 1u << 19;
  size_t name = 4096;  // bytes
};

// The part [begin, begin + size) of a file is an archive: all of it, mostly. Offsets of members are
// the file's. Refused, with the byte and what was expected: a directory that is cut, damaged or
// over a limit; members that overlap, leave the file or have another name in their local header;
// names that are absolute, go upwards or come twice; archives of several disks. Deflated and
// encrypted members are `unreadable`. Memory: the directory's bytes, some 100 a member.
std::optional<Problem> ReadZip(const InputFile& file, uint64_t begin, uint64_t size,
                               ZipArchive* archive, const ZipLimits& limits = {});
std::optional<Problem> ReadZip(const InputFile& file, ZipArchive* archive);

}  // namespace plumbline::audit
