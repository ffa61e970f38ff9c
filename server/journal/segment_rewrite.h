// A segment that nobody writes to any more, written again: packed, or as it was before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/framed_log.h"
#include "server/journal/segments.h"

namespace plumbline::server {

struct RewriteOptions {
  bool pack = true;  // false: every entry in a frame of its own
  std::string tool_version;
  // What takes an entry's place: its payload, of the same prefix. False: it stays. Null: all stay.
  std::function<bool(FrameType type, std::string_view payload, std::string* instead)> edit;
  // Asked after each frame that is written; false: no more.
  std::function<bool()> go_on = [] { return true; };
};

// Whether the segment is packed. By its header; Unavailable or DataLoss when that cannot be read.
absl::StatusOr<bool> IsPacked(const Segment& segment);

// Where the new one is made.
std::string RewritePath(const Segment& segment);
bool IsRewritePath(const std::string& path);

// Writes the entries `segment.first` to `last_entry` of the segment, and the streams at its head,
// to RewritePath and syncs that; the segment itself stays as it is. Every entry comes back as it
// was, or as `edit` made it, or the segment is not written again: DataLoss when something of it is
// missing, damaged or unknown, Cancelled when told so, others from the disk. Nothing is left behind
// then. Throws bad_alloc.
absl::Status RewriteSegment(const Segment& segment, uint64_t last_entry,
                            const RewriteOptions& options);

}  // namespace plumbline::server
