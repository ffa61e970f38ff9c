// bash: one function that reads the words before the cursor and then looks up what may follow.
#include "command_line/completion_model.h"

namespace plumbline::completion {
namespace {

// bash passes `--option=value` as three words, and the word at the cursor may be the `=` alone.
// `option` is the one whose value is at the cursor.
constexpr const char* kWalk =
    R"(  local current=${COMP_WORDS[COMP_CWORD]} words= options= files= option= word i
  COMPREPLY=()
  [[ $current == '=' ]] && current=
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    case "$at $word" in
)";

constexpr const char* kSkipValue = R"(        [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((++i))
        ((++i >= COMP_CWORD)) && option=" $word"
        ;;
    esac
  done
)";

constexpr const char* kReply = R"(  esac
  if [[ -z $option && $current == -* ]]; then
    words=$options
  elif [[ -n $files ]]; then
    compopt -o "$files"
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
)";

// Returns a pattern of the shell's `case`.
std::string BashPattern(const std::vector<std::string>& labels) {
  std::vector<std::string> quoted;
  for (const std::string& label : labels) quoted.push_back(Quoted(label));
  return Joined(quoted, " | \\\n      ") + ")";
}

// Leaves files to bash, which handles quotes and ~; bash takes over if the reply is empty.
std::string BashValue(const Value& value) {
  switch (value.kind) {
    case Value::kWords:
      return "words=" + Quoted(Joined(value.words, " "));
    case Value::kPrinted:
      return "words=$(" + value.command + " 2>/dev/null | cut -d' ' -f1)";
    case Value::kFile:
      return "files=default";
    case Value::kDirectory:
      return "files=dirnames";
    default:
      return "";
  }
}

std::string BashCase(const std::vector<std::string>& labels,
                     const std::vector<std::string>& lines) {
  std::string text = "    " + BashPattern(labels) + "\n";
  for (const std::string& line : lines) text += "      " + line + "\n";
  return text + "      ;;\n";
}

// Returns what may be at a place that needs neither an option nor its value.
std::string BashCommand(const Command& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  std::vector<std::string> lines = {"options=" + Quoted(Joined(names, " "))};
  std::vector<std::string> subs;
  for (const Command& sub : command.subcommands) subs.push_back(sub.name);
  if (!subs.empty()) lines.push_back("words=" + Quoted(Joined(subs, " ")));
  for (const Option& positional : command.positionals) {
    const std::string line = BashValue(positional.value);
    if (!line.empty()) lines.push_back(line);
  }
  if (subs.empty() && command.positionals.empty()) lines.emplace_back("words=$options");
  return BashCase({command.path}, lines);
}

std::string BashOptions(const Command& command) {
  std::string text;
  for (const Option& option : command.options) {
    const std::string line = BashValue(option.value);
    if (line.empty()) continue;
    std::vector<std::string> labels;
    for (const std::string& name : option.names) labels.push_back(command.path + " " + name);
    text += BashCase(labels, {line});
  }
  return text;
}

}  // namespace

std::string BashScript(const Command& program) {
  const std::string function = "_" + program.name;
  std::string text = function + "() {\n  local at=" + Quoted(program.name) + "\n" + kWalk;
  if (const auto paths = SubcommandPaths(program); !paths.empty()) {
    text += "      " + BashPattern(paths) + "\n        at+=\" $word\"\n        ;;\n";
  }
  text += "      " + BashPattern(ValuedOptions(program)) + "\n" + kSkipValue;
  text += "  case \"$at$option\" in\n";
  for (const Command* command : AllCommands(program))
    text += BashCommand(*command) + BashOptions(*command);
  return text + kReply + "complete -F " + function + " " + program.name + "\n";
}

}  // namespace plumbline::completion
