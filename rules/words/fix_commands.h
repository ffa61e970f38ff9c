// What in the words of a fix is to be copied. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace plumbline::rules {

struct FixCommand {
  std::string where;  // "Megatron-LM"; empty: not said
  std::string text;   // to be copied, one line
  bool operator==(const FixCommand&) const = default;
};

// In this order, each once, at most eight: what stands between backticks, but for plain words;
// parts of parentheses that hold code, "(Megatron-LM: --option VALUE; DeepSpeed key=value)";
// options that stand in the open, "Megatron-LM --option". Code is a word that begins with "--", has
// an underscore, or a "=" or "(" or "." within it, and a line that begins with the name of a
// program that people know.
std::vector<FixCommand> CommandsIn(const std::string& fix);

// The same text without parentheses of which all parts are commands, and without backticks.
std::string WithoutCommands(std::string fix);

}  // namespace plumbline::rules
