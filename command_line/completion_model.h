// The data that completion needs of a command line, between CLI11 and the writers of scripts.
#pragma once

#include <string>
#include <vector>

namespace plumbline::completion {

struct Value {
  enum Kind { kNone, kAny, kWords, kPrinted, kFile, kDirectory };
  Kind kind = kNone;               // kNone: a flag, takes no value
  std::vector<std::string> words;  // kWords
  std::string command;             // kPrinted: prints the words, one at the start of each line
  std::string type;                // its name in help
};

struct Option {
  std::vector<std::string> names;  // with their dashes; one without them for a positional
  std::string description;
  Value value;
  bool repeats = false;
};

struct Command {
  std::string path;  // "plumb query series"
  std::string name;  // "series"
  std::string description;
  std::vector<Option> options;
  std::vector<Option> positionals;
  std::vector<Command> subcommands;
};

std::string BashScript(const Command& program);
std::string ZshScript(const Command& program);
std::string FishScript(const Command& program);

// Functions that the writers share.
std::vector<const Command*> AllCommands(const Command& program);   // parents first
std::vector<std::string> SubcommandPaths(const Command& program);  // "plumb query series"
std::vector<std::string> ValuedOptions(const Command& program);    // "plumb audit --format"
std::string Joined(const std::vector<std::string>& words, const std::string& between);
std::string Quoted(const std::string& text);  // in single quotes, for bash and zsh

}  // namespace plumbline::completion
