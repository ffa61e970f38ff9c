// Colours of a terminal whose escape byte was lost: a copy from a web page leaves "[36mStep 6
// loss 2.5[0m", `cat -v` "^[[36m", rsyslog "#033[36m". Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns the line without them. If it has none, returns it as it is; else `scratch` has the text.
// A duration in brackets, "[10m 5s]", is no colour.
std::string_view WithoutLostEscapes(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
