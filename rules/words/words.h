// The words for strengths, verdicts and states, wherever people or programs read them. Levels have
// theirs in analysis/frame (LevelName).
#pragma once

#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// "heuristic", "statistical", "bounded", "proved"; "unspecified" for anything else.
const char* StrengthName(v1::Strength strength);
// "pass", "finding", "inconclusive"; "unspecified" for anything else.
const char* VerdictName(v1::Verdict::Kind kind);
// "open", "acknowledged", "silenced", "resolved"; "open" for anything else.
const char* StateName(v1::Incident::State state);

// Keys of a witness whose arrays are to be drawn, and not to be read in a line: "queue", "scatter",
// "lanes", "waits".
bool IsPicture(std::string_view key);

}  // namespace plumbline::rules
