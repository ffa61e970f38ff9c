// Describes values of a TOML file in messages to people.
#pragma once

#include <toml++/toml.h>

#include <sstream>
#include <string>

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

// Returns the value: `"many"`, 1.5, true; its kind if it is longer.
inline std::string TomlFound(const toml::node& node) {
  if (node.is_string()) return "\"" + **node.as_string() + "\"";
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& element : *array) {
      if (!element.is_string()) return std::string("an array with ") + TomlTypeName(element);
    }
    return array->empty() ? "an empty array" : "an array of strings";
  }
  std::ostringstream text;
  if (node.is_integer()) text << **node.as_integer();
  if (node.is_floating_point()) text << **node.as_floating_point();
  if (node.is_boolean()) text << (**node.as_boolean() ? "true" : "false");
  return text.str().empty() ? TomlTypeName(node) : text.str();
}

}  // namespace plumbline
