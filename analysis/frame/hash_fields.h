// What fingerprints are made of. Thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace plumbline::rules {

// 32 hex digits over the fields, each with its length before it, so that ("ab","c") and ("a","bc")
// differ, and so do lists of other lengths. The same on every host.
std::string HashFields(std::initializer_list<std::string_view> fields);

}  // namespace plumbline::rules
