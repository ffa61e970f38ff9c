// What the commands that ask a server share: where they print and how.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace plumbline::audit {

inline constexpr int kLiveFailed = 2;

// "plumb: MESSAGE" on standard error; returns kLiveFailed.
int LiveFailed(const absl::Status& status);
// To standard output. 0, or kLiveFailed when it cannot be written.
int LivePrint(const std::string& text);

std::string JsonString(std::string_view text);
// A column of a table: padded, and two spaces.
std::string Padded(std::string text, size_t width);

}  // namespace plumbline::audit
