// Reads parts of zip records (APPNOTE.TXT 6.3.10).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/zip/archive.h"

namespace plumbline::audit {

inline constexpr uint32_t kZipLocal = 0x04034b50;
inline constexpr uint32_t kZipEntry = 0x02014b50;
inline constexpr uint32_t kZipEnd = 0x06054b50;
inline constexpr uint32_t kZipEnd64 = 0x06064b50;
inline constexpr uint32_t kZipEnd64Place = 0x07064b50;
inline constexpr size_t kZipLocalSize = 30, kZipEntrySize = 46, kZipEndSize = 22;
inline constexpr size_t kZipEnd64Size = 56, kZipEnd64PlaceSize = 20;

// Returns a little-endian number at a position that the caller has checked.
inline uint64_t ZipNumber(std::string_view bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}
inline uint16_t Zip16(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(ZipNumber(bytes, at, 2));
}
inline uint32_t Zip32(std::string_view bytes, size_t at) {
  return static_cast<uint32_t>(ZipNumber(bytes, at, 4));
}
inline uint64_t Zip64(std::string_view bytes, size_t at) { return ZipNumber(bytes, at, 8); }

// Finds the position of each member's data, from its local header, and checks that no two members
// overlap. `end`: the position of the directory; every member must end before it.
std::optional<Problem> PlaceMembers(const InputFile& file, uint64_t end, ZipArchive* archive);

}  // namespace plumbline::audit
