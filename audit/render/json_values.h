// JSON values that several reports share.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/render/text_util.h"
#include "base/printable.h"

namespace plumbline::audit {

// Returns a number, or a string for values that JSON cannot represent (NaN, the infinities).
inline nlohmann::ordered_json JsonNumber(double value) {
  if (!std::isfinite(value)) return ExactNumber(value);
  return value;
}

// Returns the names as a list; a byte that is not UTF-8 is replaced.
inline nlohmann::ordered_json JsonNames(const std::vector<std::string>& names) {
  auto list = nlohmann::ordered_json::array();
  for (const std::string& name : names) list.push_back(ValidUtf8(name));
  return list;
}

}  // namespace plumbline::audit
