// The names of strengths, verdicts and states, for people and programs. The names of levels are in
// analysis/frame (LevelName).
#pragma once

#include <string>
#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Returns "heuristic", "statistical", "bounded" or "proved". For any other value, returns
// "unspecified".
const char* StrengthName(v1::Strength strength);
// Returns "pass", "finding" or "inconclusive". For any other value, returns "unspecified".
const char* VerdictName(v1::Verdict::Kind kind);
// Returns "open", "acknowledged", "silenced" or "resolved". For any other value, returns "open".
const char* StateName(v1::Incident::State state);

// A reason of an inconclusive verdict is "code: sentence", or a sentence. Returns the sentence.
std::string ReasonSentence(std::string_view reason);
// Returns the code as words: "few steps". If the reason has no code, returns the reason.
std::string ReasonName(std::string_view reason);

// Returns "3.2 GPU hours", "40 rank seconds"; empty for 0.
std::string LostText(double rank_seconds, bool on_gpus);

// Returns true for a key of a witness whose arrays are drawn, not printed in a line: "queue",
// "scatter", "lanes", "waits".
bool IsPicture(std::string_view key);

}  // namespace plumbline::rules
