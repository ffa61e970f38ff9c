// Output functions that the commands of this folder share.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace plumbline::audit {

inline constexpr int kLiveFailed = 2;

// Prints "plumb: MESSAGE" to standard error. Returns kLiveFailed.
int LiveFailed(const absl::Status& status);
// Prints to standard output. Returns 0, or kLiveFailed if it cannot be written.
int LivePrint(const std::string& text);

std::string JsonString(std::string_view text);
// Pads a column of a table, and adds two spaces.
std::string Padded(std::string text, size_t width);

}  // namespace plumbline::audit
