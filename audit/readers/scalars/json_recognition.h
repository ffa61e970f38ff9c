// Which texts are scalars as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumbline::audit {

inline constexpr size_t kLookObjects = 64;  // by which the step's key is told
inline constexpr std::string_view kJsonMark = "\xEF\xBB\xBF";
inline constexpr std::string_view kHistory = "log_history";

inline bool IsBlankJson(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// PointFormat.recognise of JSON.
bool IsJsonScalars(std::string_view path, std::string_view head);
// The same where the user says what the key of steps is called.
bool IsJsonScalars(std::string_view path, std::string_view head, const std::string& step);

}  // namespace plumbline::audit
