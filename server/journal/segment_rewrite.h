// Rewrites a segment that is no longer written: packed or unpacked.
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
  bool pack = true;  // false: every entry in a separate frame
  std::string tool_version;
  // Sets `instead` to a new payload with the same prefix and returns true, or returns false to keep
  // the entry. Null: all stay.
  std::function<bool(FrameType type, std::string_view payload, std::string* instead)> edit;
  // Called after each frame written; returns false to cancel.
  std::function<bool()> go_on = [] { return true; };
};

// Returns whether the segment is packed, by its header. Returns Unavailable or DataLoss if that
// cannot be read.
absl::StatusOr<bool> IsPacked(const Segment& segment);

// Returns the path of the new file.
std::string RewritePath(const Segment& segment);
bool IsRewritePath(const std::string& path);

// Writes the entries `segment.first` to `last_entry` of the segment, and the streams at its head,
// to RewritePath and syncs it. The segment itself stays unchanged. Every entry is unchanged, or
// changed by `edit`; otherwise this fails and leaves no file: DataLoss if part of the segment is
// missing, damaged or unknown, Cancelled if go_on returned false, other errors from the disk.
// Throws bad_alloc.
absl::Status RewriteSegment(const Segment& segment, uint64_t last_entry,
                            const RewriteOptions& options);

}  // namespace plumbline::server
