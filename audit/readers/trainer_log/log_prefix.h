// Names and numbers before the mark of a line: series, or what a logger prints there of the
// process, the place and the time. Pure; thread-safe.
#pragma once

#include <string_view>

#include "audit/readers/log_text/log_pairs.h"

namespace plumbline::audit {

// True if the pair of `text` is of the process, the place, the time or the counts themselves.
bool IsOfTheLine(std::string_view text, const LogPair& pair);
// "[train:33, " before a value, "]" behind it: the place of a logger.
bool IsInBrackets(std::string_view text, std::string_view name);
// "| wps 1000 |": the name of one word begins a part of the line.
bool IsPartOfItsOwn(std::string_view text, std::string_view name);

}  // namespace plumbline::audit
