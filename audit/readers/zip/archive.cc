#include "audit/readers/zip/archive.h"

#include <algorithm>
#include <utility>

#include "audit/readers/zip/records.h"

namespace plumbline::audit {
namespace {

// The position of the directory, as an offset in the file.
struct Directory {
  uint64_t at = 0, size = 0, members = 0;
};

class ZipReader {
 public:
  ZipReader(const InputFile& file, uint64_t begin, uint64_t size, const ZipLimits& limits,
            ZipArchive* archive)
      : file_(file), begin_(begin), size_(size), limits_(limits), archive_(*archive) {}

  std::optional<Problem> Read() {
    if (auto problem = FindDirectory()) return problem;
    if (auto problem = ReadEntries()) return problem;
    if (auto problem = PlaceMembers(file_, directory_.at, &archive_)) return problem;
    auto& members = archive_.members;
    std::sort(members.begin(), members.end(),
              [](const ZipMember& a, const ZipMember& b) { return a.name < b.name; });
    for (size_t i = 1; i < members.size(); ++i) {
      if (members[i].name == members[i - 1].name) {
        return Problem{members[i].head,
                       "expected each member once, found " + Quoted(members[i].name) + " again"};
      }
    }
    return std::nullopt;
  }

 private:
  // Reads `size` bytes from `at` on, which must be within the archive.
  std::optional<Problem> Bytes(uint64_t at, uint64_t size, const char* what, std::string* bytes) {
    if (at < begin_ || at - begin_ > size_ || size > size_ - (at - begin_)) {
      return Problem{at, "expected " + std::to_string(size) + " bytes of " + what +
                             " within the archive, found its end"};
    }
    bytes->resize(static_cast<size_t>(size));
    if (const absl::Status status = file_.ReadAt(at, bytes->data(), bytes->size()); !status.ok())
      return Problem{at, std::string(status.message())};
    return std::nullopt;
  }

  // Finds the directory by the end record. A comment of at most 64 KiB may follow that record.
  std::optional<Problem> FindDirectory() {
    const uint64_t tail = std::min<uint64_t>(size_, kZipEndSize + 0xffff);
    const uint64_t tail_at = begin_ + size_ - tail;
    std::string bytes;
    if (auto problem = Bytes(tail_at, tail, "a zip's end record", &bytes)) return problem;
    for (size_t i = bytes.size() < kZipEndSize ? 0 : bytes.size() - kZipEndSize + 1; i-- > 0;) {
      if (Zip32(bytes, i) != kZipEnd) continue;
      if (i + kZipEndSize + Zip16(bytes, i + 20) != bytes.size()) continue;
      return ReadEnd(tail_at + i, std::string_view(bytes).substr(i, kZipEndSize));
    }
    return Problem{begin_ + size_,
                   "expected a zip's end record with its directory, found the end of the file (the "
                   "file is truncated, or is still being written)"};
  }

  std::optional<Problem> ReadEnd(uint64_t at, std::string_view end) {
    if (Zip16(end, 4) != Zip16(end, 6) || Zip16(end, 8) != Zip16(end, 10))
      return Problem{at, "expected an archive of one file, found one of several disks"};
    directory_ = {begin_ + Zip32(end, 16), Zip32(end, 12), Zip16(end, 10)};
    uint64_t ends = at;
    // If there are bytes between the directory and this record, they are usually the 64-bit record,
    // which torch always writes.
    if (directory_.at > at || directory_.size != at - directory_.at) {
      if (auto problem = ReadEnd64(at, &ends)) return problem;
    }
    if (directory_.size > limits_.directory || directory_.members > limits_.members) {
      return Problem{at, "expected a directory of at most " + std::to_string(limits_.members) +
                             " members and " + std::to_string(limits_.directory) +
                             " bytes, found " + std::to_string(directory_.members) + " and " +
                             std::to_string(directory_.size)};
    }
    if (directory_.at > ends || directory_.size != ends - directory_.at) {
      return Problem{at, "expected the directory of " + std::to_string(directory_.size) +
                             " bytes before its end record, found it at byte " +
                             std::to_string(directory_.at)};
    }
    return std::nullopt;
  }

  // Reads the 64-bit record, for sizes beyond 32 bits. A locator before the end record has its
  // position.
  std::optional<Problem> ReadEnd64(uint64_t at, uint64_t* ends) {
    std::string place, end;
    if (at - begin_ < kZipEnd64PlaceSize) return std::nullopt;
    if (auto p = Bytes(at - kZipEnd64PlaceSize, kZipEnd64PlaceSize, "a 64-bit locator", &place))
      return p;
    if (Zip32(place, 0) != kZipEnd64Place) return std::nullopt;  // there is no locator
    const uint64_t offset = Zip64(place, 8);
    if (offset > size_) {
      return Problem{at - kZipEnd64PlaceSize,
                     "expected the 64-bit end record within the archive, "
                     "found it at byte " +
                         std::to_string(offset)};
    }
    *ends = begin_ + offset;
    if (auto p = Bytes(*ends, kZipEnd64Size, "a 64-bit end record", &end)) return p;
    if (Zip32(end, 0) != kZipEnd64)
      return Problem{*ends, "expected a 64-bit end record, found other bytes"};
    if (Zip32(end, 16) != Zip32(end, 20))
      return Problem{*ends, "expected an archive of one file, found one of several disks"};
    if (Zip64(end, 48) > size_)
      return Problem{*ends, "expected a directory within the archive, found it at byte " +
                                std::to_string(Zip64(end, 48))};
    const Directory small =
        std::exchange(directory_, {begin_ + Zip64(end, 48), Zip64(end, 40), Zip64(end, 32)});
    const auto agree = [](uint64_t few, uint64_t ones, uint64_t many) {
      return few == ones || few == many;
    };
    if (agree(small.at - begin_, UINT32_MAX, directory_.at - begin_) &&
        agree(small.size, UINT32_MAX, directory_.size) &&
        agree(small.members, 0xffff, directory_.members))
      return std::nullopt;
    return Problem{*ends,
                   "expected equal numbers in the 64-bit end record and the other one, found "
                   "different numbers"};
  }

  std::optional<Problem> ReadEntries() {
    std::string bytes;
    if (auto problem = Bytes(directory_.at, directory_.size, "a zip's directory", &bytes))
      return problem;
    size_t at = 0;
    for (uint64_t i = 0; i < directory_.members; ++i) {
      const uint64_t place = directory_.at + at;
      const std::string_view rest = std::string_view(bytes).substr(at);
      if (rest.size() < kZipEntrySize || Zip32(rest, 0) != kZipEntry) {
        return Problem{place, "expected entry " + std::to_string(i) + " of " +
                                  std::to_string(directory_.members) +
                                  " in the directory, found other bytes"};
      }
      const size_t name = Zip16(rest, 28), extra = Zip16(rest, 30), comment = Zip16(rest, 32);
      if (rest.size() - kZipEntrySize < name + extra + comment)
        return Problem{place, "expected a complete entry of the directory, found its end"};
      if (auto problem = TakeEntry(place, rest, name, extra)) return problem;
      at += kZipEntrySize + name + extra + comment;
    }
    if (at != bytes.size()) {
      return Problem{directory_.at + at, "expected the end of the directory after " +
                                             std::to_string(directory_.members) +
                                             " members, found more"};
    }
    return std::nullopt;
  }

  std::optional<Problem> TakeEntry(uint64_t place, std::string_view entry, size_t name,
                                   size_t extra) {
    ZipMember member;
    member.name = entry.substr(kZipEntrySize, name);
    if (auto problem = CheckName(place, member.name)) return problem;
    uint64_t whole = Zip32(entry, 24), head = Zip32(entry, 42);
    member.size = Zip32(entry, 20);
    member.crc = Zip32(entry, 16);
    const std::string_view more = entry.substr(kZipEntrySize + name, extra);
    if (!ReadExtra64(more, {&whole, &member.size, &head}))
      return Problem{place,
                     "expected 64-bit sizes of " + Quoted(member.name) + ", found them truncated"};
    if (head > size_ || size_ - head < kZipLocalSize) {
      return Problem{place, "expected the header of " + Quoted(member.name) +
                                " within the archive, found it at byte " + std::to_string(head)};
    }
    member.head = begin_ + head;
    const uint16_t flags = Zip16(entry, 8), method = Zip16(entry, 10);
    if ((flags & 1u) != 0 || (flags & 0x40u) != 0) {
      member.unreadable = "encrypted";
    } else if (method != 0) {
      member.unreadable =
          method == 8 ? "deflated" : "compressed (method " + std::to_string(method) + ")";
    } else if (whole != member.size) {
      return Problem{place, "expected a stored member of " + std::to_string(member.size) +
                                " bytes, found a size of " + std::to_string(whole)};
    }
    archive_.members.push_back(std::move(member));
    return std::nullopt;
  }

  std::optional<Problem> CheckName(uint64_t place, const std::string& name) const {
    const bool absolute = name.starts_with('/') || name.starts_with('\\') || name.find(':') == 1;
    const bool upwards = name == ".." || name.starts_with("../") || name.ends_with("/..") ||
                         name.find("/../") != std::string::npos;
    const bool odd = name.empty() || name.size() > limits_.name ||
                     name.find('\0') != std::string::npos || name.find('\\') != std::string::npos;
    if (!absolute && !upwards && !odd) return std::nullopt;
    return Problem{place,
                   "expected the name of a member within the archive, found " + Quoted(name)};
  }

  // Reads fields from the extra field, in this order. It has those whose 32 bits are all ones.
  // Returns false if it is truncated.
  static bool ReadExtra64(std::string_view extra, std::initializer_list<uint64_t*> fields) {
    while (extra.size() >= 4) {
      const size_t size = Zip16(extra, 2);
      if (size > extra.size() - 4) return true;  // the rest is padding of another kind
      if (Zip16(extra, 0) == 1) {
        std::string_view rest = extra.substr(4, size);
        for (uint64_t* field : fields) {
          if (*field != UINT32_MAX) continue;
          if (rest.size() < 8) return false;
          *field = Zip64(rest, 0);
          rest.remove_prefix(8);
        }
        return true;
      }
      extra.remove_prefix(4 + size);
    }
    return true;
  }

  const InputFile& file_;
  uint64_t begin_, size_;
  const ZipLimits& limits_;
  ZipArchive& archive_;
  Directory directory_;
};

}  // namespace

const ZipMember* ZipArchive::Find(std::string_view name) const {
  const auto at =
      std::lower_bound(members.begin(), members.end(), name,
                       [](const ZipMember& m, std::string_view n) { return m.name < n; });
  return at != members.end() && at->name == name ? &*at : nullptr;
}

std::optional<Problem> ReadZip(const InputFile& file, uint64_t begin, uint64_t size,
                               ZipArchive* archive, const ZipLimits& limits) {
  *archive = {};
  return ZipReader(file, begin, size, limits, archive).Read();
}

std::optional<Problem> ReadZip(const InputFile& file, ZipArchive* archive) {
  return ReadZip(file, 0, file.size(), archive);
}

}  // namespace plumbline::audit
