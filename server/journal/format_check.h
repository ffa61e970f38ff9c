// Whether this build may touch a journal: before anything of it is opened to be read, cut or
// written.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace plumbline::server {

inline constexpr char kJournalSchema[] = "plumbline.journal/1";
// Of a segment that was packed (segment_rewrite.h). A version before it refuses it by this name.
inline constexpr char kPackedSchema[] = "plumbline.journal-packed/1";

// FailedPrecondition: a segment was written in another format, by a newer or older plumbd; which,
// and what to do. A segment whose beginning is damaged says nothing.
absl::Status CheckJournalFormat(const std::string& directory);

}  // namespace plumbline::server
