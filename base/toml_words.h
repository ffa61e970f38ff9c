// Words for what stands in a TOML file, for messages to people.
#pragma once

#include <toml++/toml.h>

namespace plumbline {

inline const char* TomlTypeName(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number with a fraction";
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "an array";
  if (node.is_table()) return "a table";
  return "a date or time";
}

}  // namespace plumbline
