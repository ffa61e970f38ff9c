// Reads counts within a line: "100/5005", "3 of 10", "[  50/1251 (  4%)]", "batch 50". Each
// function returns the count's end. If there is none, it returns `at`, and changes no count. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_words.h"

namespace plumbline::audit {

inline bool IsPartOfName(char c) { return IsPairLetter(c) || IsPairDigit(c) || c == '_'; }

inline bool ByteIs(std::string_view text, size_t at, char c) {
  return at < text.size() && text[at] == c;
}

// Reads "100/5005" and "3 of 10", spaces allowed. A date ("2024/01/02") is not a ratio.
size_t ReadRatio(std::string_view text, size_t at, LogMark* mark);
// Reads the total after a count: "/100" or " of 100".
size_t ReadTotal(std::string_view text, size_t at, int64_t* total);
// Reads "[  50/1251 (  4%)]".
size_t ReadBracket(std::string_view text, size_t at, LogMark* mark);
// Skips "(  4%)".
size_t PassShare(std::string_view text, size_t at);
// Reads "batch 50", "Batch: 50/938", "batch=3".
size_t ReadBatch(std::string_view text, size_t at, LogMark* mark);
// Reads the batches after an epoch that ends at `at`. Signs and glyphs of a bar may be between
// them.
size_t ReadBatches(std::string_view text, size_t at, LogMark* mark);

}  // namespace plumbline::audit
