// Which texts are tables of scalars.
#pragma once

#include <cstddef>
#include <string_view>

namespace plumbline::audit {

inline constexpr size_t kCsvLookRows = 64;  // by which the step's column is told
inline constexpr std::string_view kCsvMark = "\xEF\xBB\xBF";

// PointFormat.recognise of tables.
bool IsCsv(std::string_view path, std::string_view head);

}  // namespace plumbline::audit
