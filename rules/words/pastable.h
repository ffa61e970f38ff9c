// Internal to this folder: the complete lines for names in a fix. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::rules {

// Returns true for a program that is usual on the hosts of a run.
bool IsProgram(std::string_view word);

// Returns the line to paste for a name: itself, or a completed line. If it must not be pasted,
// returns an empty string.
std::string LineOf(std::string_view name);

}  // namespace plumbline::rules
