// Recognises files with scalars in JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

inline constexpr size_t kLookObjects = 64;  // number of objects from which the step's key is chosen
inline constexpr std::string_view kJsonMark = "\xEF\xBB\xBF";
inline constexpr std::string_view kHistory = "log_history";

inline bool IsBlankJson(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Returns the list of steps in an object of lists, `{"steps": [10, 20], "loss": [2.5, 2.25]}`. If
// there is no such list, or its values do not increase, returns an empty list.
std::vector<int64_t> StepsInColumns(std::string_view text);

// Removes spaces and the comma at the line's end.
std::string_view WithoutComma(std::string_view line);

inline bool IsJsonNumber(JsonCursor::Kind kind) {
  return kind == JsonCursor::Kind::kNumber || kind == JsonCursor::Kind::kWord;
}
// Returns true if the text is an object with a list `log_history`. The text may be truncated.
bool JsonHasHistory(std::string_view text);
// Returns true if the text is an object whose first member is a list of numbers: `{"loss":
// [2.5, 2.25], ...}`.
bool JsonHasColumns(std::string_view text);

// Returns true if a file's first line that is not empty begins a document: a list, or an object
// that continues on the next line or contains all others.
bool BeginsJsonDocument(std::string_view line);

// Recognises [[wall time, step, value], ...], which TensorBoard downloads.
bool IsTensorBoardList(std::string_view text);

// PointFormat.recognise for JSON.
bool IsJsonScalars(std::string_view path, std::string_view head);
// The same if the user names the key of steps.
bool IsJsonScalars(std::string_view path, std::string_view head, const std::string& step);

}  // namespace plumbline::audit
