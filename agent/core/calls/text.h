// Texts of the C ABI.
#pragma once

#include <string_view>

namespace plumbline::agent {

// NULL is an empty one. Not a copy.
inline std::string_view TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace plumbline::agent
