// Extracts the commands to copy from the text of a fix. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace plumbline::rules {

struct FixCommand {
  std::string where;  // "Megatron-LM"; empty if the fix names none
  std::string text;   // one line that can be pasted; placeholders are in capitals
  bool operator==(const FixCommand&) const = default;
};

// Returns at most eight commands, each once, in this order: texts between backticks, except plain
// words; parts of parentheses that contain code, "(Megatron-LM: --option VALUE; DeepSpeed
// key=value)"; options outside of parentheses, "Megatron-LM --option". Code is a word that begins
// with "--", has an underscore, or contains "=", "(" or ".", or a line that begins with the name of
// a known program. Only commands that can be pasted are returned: a shell line, an option (with its
// value), a setting with its value, a call. If a name is incomplete, a table (pastable.cc) has its
// line, or it is left out.
std::vector<FixCommand> CommandsIn(const std::string& fix);

// Returns true if it can be pasted into a shell, a trainer's options, a program or a configuration.
bool IsPastable(const std::string& text);

// Returns an explanation of the placeholders, "PID: the process of a named rank, on its host". If
// there are none, returns an empty string.
std::string PlaceholdersIn(const std::string& command);

// Returns the text without parentheses that only contain commands, and without backticks.
std::string WithoutCommands(std::string fix);

}  // namespace plumbline::rules
