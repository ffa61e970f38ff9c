// What in the words of a fix is to be copied. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace plumbline::rules {

struct FixCommand {
  std::string where;  // "Megatron-LM"; empty: not said
  std::string text;   // one line that can be pasted; what is to be filled in stands in capitals
  bool operator==(const FixCommand&) const = default;
};

// In this order, each once, at most eight: what stands between backticks, but for plain words;
// parts of parentheses that hold code, "(Megatron-LM: --option VALUE; DeepSpeed key=value)";
// options that stand in the open, "Megatron-LM --option". Code is a word that begins with "--", has
// an underscore, or a "=" or "(" or "." within it, and a line that begins with the name of a
// program that people know. Of these only what can be pasted as it is: a line for a shell, an
// option (with its value), a setting with its value, a call. A name that is short of that has its
// line in a table (pastable.cc), or is left out.
std::vector<FixCommand> CommandsIn(const std::string& fix);

// Can it be pasted: in a shell, to the options of a trainer, in a program or a configuration?
bool IsPastable(const std::string& text);

// What is to be filled in, "PID: the process of a named rank, on its host"; empty: nothing is.
std::string PlaceholdersIn(const std::string& command);

// The same text without parentheses of which all parts are commands, and without backticks.
std::string WithoutCommands(std::string fix);

}  // namespace plumbline::rules
