// The JSON of a safetensors header: which keys and values may stand where. What they mean, and
// whether they fit the file, is safetensors/header.cc's.
#pragma once

#include <optional>
#include <string>

#include "audit/readers/safetensors/header.h"

namespace plumbline::audit {

// Fills metadata and tensors as written: offsets within the data, dtypes by name alone. The
// problem, or nothing.
std::optional<Problem> ParseSafetensorsJson(const std::string& json, SafetensorsHeader* header);

}  // namespace plumbline::audit
