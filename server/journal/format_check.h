// Checks whether this build may use a journal, before any part of it is read, cut or written.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace plumbline::server {

inline constexpr char kJournalSchema[] = "plumbline.journal/1";
// Schema of a packed segment (segment_rewrite.h). An older version refuses it because of this name.
inline constexpr char kPackedSchema[] = "plumbline.journal-packed/1";

// Returns FailedPrecondition if a segment was written in another format, by a newer or older
// plumbd; the message names the segment and the fix. A segment whose beginning is damaged is
// ignored.
absl::Status CheckJournalFormat(const std::string& directory);

}  // namespace plumbline::server
