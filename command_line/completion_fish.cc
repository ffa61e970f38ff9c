// fish: one `complete` per option, each with the command after which it is valid.
#include "command_line/completion_model.h"

namespace plumbline::completion {
namespace {

// Quotes for fish, whose single quotes have two escapes.
std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string FishList(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) text += " \\\n        " + FishQuoted(label);
  return text;
}

// Returns the words of a value; empty if there are none.
std::string FishValue(const Value& value) {
  switch (value.kind) {
    case Value::kWords:
      return " -a " + FishQuoted(Joined(value.words, " "));
    case Value::kPrinted:
      return " -a " +
             FishQuoted("(" + value.command + " 2>/dev/null | string replace -r ' .*' '')");
    case Value::kFile:
      return " -F";
    case Value::kDirectory:
      return " -a '(__fish_complete_directories)'";
    default:
      return "";
  }
}

std::string FishOption(const Option& option, const std::string& begin) {
  std::string text = begin;
  for (const std::string& name : option.names) {
    const bool long_name = name.rfind("--", 0) == 0;
    text += long_name ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  const Value::Kind kind = option.value.kind;
  if (kind != Value::kNone) text += kind == Value::kFile ? " -r" : " -x";
  return text + FishValue(option.value) + " -d " + FishQuoted(option.description) + "\n";
}

std::string FishCommand(const Command& command, const std::string& program) {
  const std::string begin =
      "complete -c " + program + " -n " + FishQuoted("__" + program + "_at " + command.path);
  std::string text;
  for (const Command& sub : command.subcommands) {
    text += begin + " -a " + FishQuoted(sub.name) + " -d " + FishQuoted(sub.description) + "\n";
  }
  for (const Option& positional : command.positionals) {
    const std::string value = FishValue(positional.value);
    if (!value.empty()) text += begin + value + "\n";
  }
  for (const Option& option : command.options) text += FishOption(option, begin);
  return text;
}

// Returns a test that is true if the words before the cursor name that command; an option's value
// names none.
std::string FishWalk(const Command& program) {
  std::string text = "function __" + program.name + "_at\n  set -l at " + program.name + "\n";
  text += "  set -l skip 0\n  set -l words (commandline -opc)\n  set -e words[1]\n";
  text +=
      "  for word in $words\n    if test $skip = 1\n      set skip 0\n      continue\n    end\n";
  text += "    switch \"$at $word\"\n";
  if (const auto paths = SubcommandPaths(program); !paths.empty()) {
    text += "      case" + FishList(paths) + "\n        set at \"$at $word\"\n";
  }
  text += "      case" + FishList(ValuedOptions(program)) + "\n        set skip 1\n";
  return text + "    end\n  end\n  test \"$at\" = \"$argv\"\nend\n\n";
}

}  // namespace

std::string FishScript(const Command& program) {
  std::string text = FishWalk(program) + "complete -c " + program.name + " -f\n";
  for (const Command* command : AllCommands(program)) text += FishCommand(*command, program.name);
  return text;
}

}  // namespace plumbline::completion
