// Parses the JSON of a safetensors header, and refuses keys and values that the format does not
// allow. safetensors/header.cc interprets them and checks them against the file.
#pragma once

#include <optional>
#include <string>

#include "audit/readers/safetensors/header.h"

namespace plumbline::audit {

// Fills metadata and tensors as written: offsets within the data, dtypes by name only. Returns the
// problem, or nothing.
std::optional<Problem> ParseSafetensorsJson(const std::string& json, SafetensorsHeader* header);

}  // namespace plumbline::audit
