// Texts of the C ABI.
#pragma once

#include <string_view>

namespace plumbline::agent {

// Returns a view of `text`, without a copy; NULL gives an empty one.
inline std::string_view TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace plumbline::agent
