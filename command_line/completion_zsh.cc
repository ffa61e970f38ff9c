// zsh: one function per command, each a call of _arguments.
#include <algorithm>

#include "command_line/completion_model.h"

namespace plumbline::completion {
namespace {

std::string ZshFunction(const std::string& path) {
  std::string name = "_" + path;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// Two underscores: with one it would be the function of a subcommand "printed".
std::string ZshHelper(const std::string& program) { return "__" + program + "_printed"; }

// Escapes for a specification of _arguments.
std::string ZshEscaped(const std::string& text, const std::string& special) {
  std::string escaped;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Returns ":TYPE:ACTION", to follow an option or a positional's number.
std::string ZshValue(const Value& value, const std::string& program) {
  const std::string begin = ":" + ZshEscaped(value.type, "\\:") + ":";
  switch (value.kind) {
    case Value::kNone:
      return "";
    case Value::kWords: {
      std::vector<std::string> words;
      for (const std::string& word : value.words) words.push_back(ZshEscaped(word, "\\:() "));
      return begin + "(" + Joined(words, " ") + ")";
    }
    case Value::kPrinted:
      return begin + "{" + ZshHelper(program) + " " + value.command + "}";
    case Value::kFile:
      return begin + "_files";
    case Value::kDirectory:  // _files would offer files if there is no directory
      return begin + "_path_files -/";
    case Value::kAny:
      break;
  }
  return begin + " ";  // a value must follow, and it is not known which
}

// Returns one line of _arguments per name. If an option has two names (-h, --help), each excludes
// the other.
std::vector<std::string> ZshOption(const Option& option, const std::string& program) {
  std::vector<std::string> lines;
  for (const std::string& name : option.names) {
    const bool long_name = name.rfind("--", 0) == 0;
    const std::string equals = option.value.kind == Value::kNone ? "" : long_name ? "=" : "+";
    const std::string before = option.repeats            ? "*"
                               : option.names.size() > 1 ? "(" + Joined(option.names, " ") + ")"
                                                         : "";
    lines.push_back(Quoted(before + name + equals + "[" + ZshEscaped(option.description, "\\[]:") +
                           "]" + ZshValue(option.value, program)));
  }
  return lines;
}

std::vector<std::string> ZshSpecifications(const Command& command, const std::string& program) {
  std::vector<std::string> lines;
  for (const Option& option : command.options) {
    for (std::string& line : ZshOption(option, program)) lines.push_back(std::move(line));
  }
  if (!command.subcommands.empty()) {
    lines.emplace_back("'1: :->subcommand'");
    lines.emplace_back("'*:: :->rest'");
    return lines;
  }
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const Option& positional = command.positionals[i];
    const std::string number = positional.repeats ? "*" : std::to_string(i + 1);
    // A blank action would keep _arguments from completing the options that are also possible
    // there.
    const std::string value = positional.value.kind == Value::kAny
                                  ? ":" + ZshEscaped(positional.value.type, "\\:") + ":()"
                                  : ZshValue(positional.value, program);
    lines.push_back(Quoted(number + value));
  }
  return lines;
}

std::string ZshSubcommands(const Command& command) {
  std::string text = "  case $state in\n    subcommand)\n      subcommands=(\n";
  for (const Command& sub : command.subcommands) {
    text += "        " + Quoted(ZshEscaped(sub.name, "\\:") + ":" + sub.description) + "\n";
  }
  text += "      )\n      _describe -t commands subcommand subcommands\n      ;;\n    rest)\n";
  text += "      case $line[1] in\n";
  for (const Command& sub : command.subcommands) {
    text += "        " + Quoted(sub.name) + ") " + ZshFunction(sub.path) + " ;;\n";
  }
  return text + "      esac\n      ;;\n  esac\n";
}

std::string ZshCommand(const Command& command, const std::string& program) {
  const bool nested = !command.subcommands.empty();
  std::string text = "\n" + ZshFunction(command.path) + "() {\n";
  if (nested) {
    text += "  local curcontext=$curcontext state line\n  local -a subcommands\n";
    text += "  typeset -A opt_args\n";
  }
  text += nested ? "  _arguments -C" : "  _arguments";
  for (const std::string& line : ZshSpecifications(command, program)) text += " \\\n    " + line;
  return text + "\n" + (nested ? ZshSubcommands(command) : "") + "}\n";
}

}  // namespace

std::string ZshScript(const Command& program) {
  const std::string function = ZshFunction(program.path);
  std::string text = "#compdef " + program.name + "\n\n" + ZshHelper(program.name) + "() {\n";
  text += "  local -a printed\n  printed=(${${(f)\"$(\"$@\" 2>/dev/null)\"}%% *})\n";
  text += "  compadd -a printed\n}\n";
  for (const Command* command : AllCommands(program)) text += ZshCommand(*command, program.name);
  // A file in $fpath runs as the function itself for the first completion; otherwise it is sourced.
  text += "\nif [[ $funcstack[1] == " + function + " ]]; then\n  " + function + " \"$@\"\nelse\n";
  return text + "  compdef " + function + " " + program.name + "\nfi\n";
}

}  // namespace plumbline::completion
