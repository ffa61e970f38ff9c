// Removes terminal colours without their escape byte. A copy from a web page has "[36mStep 6 loss
// 2.5[0m", `cat -v` writes "^[[36m", rsyslog "#033[36m". Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the line without such colours, as a view of `scratch`. If it has none, returns the line
// itself. A duration in brackets, "[10m 5s]", is no colour.
std::string_view WithoutLostEscapes(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
