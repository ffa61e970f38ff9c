// Reads documents in JSON that log services export.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns true if `json`, which begins with its first bracket, begins like an export.
bool LooksLikeExport(std::string_view json);

// Returns the texts of the messages by time, one per line:
// {"events": [{"message": "step 1 ..."}, ...]} (aws logs), [{"textPayload": ...}, ...] (gcloud),
// {"data": {"result": [{"values": [["1700000000000000000", "step 1 ..."], ...]}]}} (Loki).
// If `json` is truncated, returns the texts before its end.
std::string LinesOfExport(std::string_view json);

}  // namespace plumbline::audit
