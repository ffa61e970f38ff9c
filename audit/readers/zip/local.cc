// Checks each member's local header, and that members do not share bytes.
#include <algorithm>
#include <vector>

#include "audit/readers/zip/records.h"

namespace plumbline::audit {
namespace {

std::optional<Problem> PlaceMember(const InputFile& file, uint64_t end, ZipMember* member) {
  std::string header(kZipLocalSize + member->name.size(), '\0');
  if (const absl::Status status = file.ReadAt(member->head, header.data(), header.size());
      !status.ok())
    return Problem{member->head, std::string(status.message())};
  if (Zip32(header, 0) != kZipLocal) {
    return Problem{member->head,
                   "expected the header of " + Quoted(member->name) + ", found other bytes"};
  }
  const size_t name = Zip16(header, 26), extra = Zip16(header, 28);
  if (name != member->name.size() || header.compare(kZipLocalSize, name, member->name) != 0) {
    return Problem{member->head, "expected the name " + Quoted(member->name) +
                                     " in its header as in the directory, found another"};
  }
  member->begin = member->head + kZipLocalSize + name + extra;
  if (member->begin > end || member->size > end - member->begin) {
    return Problem{member->begin, "expected " + std::to_string(member->size) + " bytes of " +
                                      Quoted(member->name) + " before the directory, found fewer"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> PlaceMembers(const InputFile& file, uint64_t end, ZipArchive* archive) {
  std::vector<ZipMember*> order;
  order.reserve(archive->members.size());
  for (ZipMember& member : archive->members) order.push_back(&member);
  std::sort(order.begin(), order.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->head < b->head; });
  uint64_t taken = 0;  // bytes before this position are in use
  for (ZipMember* member : order) {
    if (member->head < taken) {
      return Problem{member->head, "expected consecutive members, found " + Quoted(member->name) +
                                       " within another"};
    }
    if (auto problem = PlaceMember(file, end, member)) return problem;
    taken = member->end();
  }
  return std::nullopt;
}

}  // namespace plumbline::audit
