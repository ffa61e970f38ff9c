// The hash of fingerprints. Thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace plumbline::analysis {

// Returns 32 hex digits over the fields, each with its length before it. So ("ab","c") and
// ("a","bc") differ, and so do lists of different lengths. Equal on every host.
std::string HashFields(std::initializer_list<std::string_view> fields);

}  // namespace plumbline::analysis
