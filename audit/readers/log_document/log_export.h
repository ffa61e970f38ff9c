// Reads documents in JSON that log services export.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// `json` begins with its first bracket. Returns true if its beginning is that of an export.
bool LooksLikeExport(std::string_view json);

// Returns the texts of the messages by time, one per line:
// {"events": [{"message": "step 1 ..."}, ...]} (aws logs), [{"textPayload": ...}, ...] (gcloud),
// {"data": {"result": [{"values": [["1700000000000000000", "step 1 ..."], ...]}]}} (Loki).
// `json` may be cut: the texts before the cut are returned.
std::string LinesOfExport(std::string_view json);

}  // namespace plumbline::audit
