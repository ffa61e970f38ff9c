// Classifies names and numbers before the mark of a line. They are series, or words of a logger
// about the process, the place and the time. Pure functions; thread-safe.
#pragma once

#include <string_view>

#include "audit/readers/log_text/log_pairs.h"

namespace plumbline::audit {

// True if the pair in `text` describes the process, the place, the time or the counts.
bool IsOfTheLine(std::string_view text, const LogPair& pair);
// True if the name is in a logger's brackets: "[train:33, " before the value and "]" after it.
bool IsInBrackets(std::string_view text, std::string_view name);
// True if the name is one word that begins a part of the line: "| wps 1000 |".
bool IsPartOfItsOwn(std::string_view text, std::string_view name);

}  // namespace plumbline::audit
