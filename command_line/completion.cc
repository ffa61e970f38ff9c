#include "command_line/completion.h"

#include <algorithm>
#include <sstream>

#include "command_line/completion_model.h"
#include "command_line/usage.h"

namespace plumbline {
namespace completion {
namespace {

// Help does not show a validator's name: we store the suggestions there, unless help uses it.
constexpr const char* kPrintedBy = "printed by ";

// Returns the choices in "{text,json}", in a transformer's "{a->1,b->2}", or in "value in {a->1} OR
// {1}": text, json; a, b.
std::vector<std::string> ChoicesIn(const std::string& text) {
  std::vector<std::string> words;
  const size_t begin = text.find('{');
  const size_t end = text.find('}', std::min(begin, text.size()));
  if (end == std::string::npos) return words;
  std::istringstream choices(text.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(choices, word, ',');) {
    words.push_back(word.substr(0, word.find("->")));
  }
  return words;
}

// Returns an option's checks. CLI11 gives neither their number nor the checks; it throws after the
// last one.
std::vector<const CLI::Validator*> ChecksOf(CLI::Option* option) {
  std::vector<const CLI::Validator*> checks;
  try {
    for (int i = 0;; ++i) checks.push_back(option->get_validator(i));
  } catch (const CLI::OptionNotFound&) {
    return checks;
  }
}

Value::Kind KindOf(const std::string& type) {
  const auto begins = [&](const char* with) { return type.rfind(with, 0) == 0; };
  if (begins("FILE") || begins("PATH")) return Value::kFile;
  return begins("DIR") ? Value::kDirectory : Value::kAny;
}

// Returns the type without the text that its checks add: "TEXT", where help has "TEXT:{text,json}".
std::string TypeOf(CLI::Option* option) {
  std::string type = option->get_type_name();
  for (const CLI::Validator* check : ChecksOf(option)) {
    const std::string description = check->get_description();
    if (!description.empty()) type = type.substr(0, type.find(":" + description));
  }
  return type;
}

Value ValueOf(CLI::Option* option) {
  Value value;
  if (option->get_items_expected_max() == 0) return value;
  value.type = option->get_positional() ? option->get_name(true) : TypeOf(option);
  value.kind = KindOf(value.type);
  for (const CLI::Validator* check : ChecksOf(option)) {
    const std::string name = check->get_name();
    const std::string description = check->get_description();
    if (name.rfind(kPrintedBy, 0) == 0) {
      value.kind = Value::kPrinted;
      value.command = name.substr(std::string(kPrintedBy).size());
    } else if (auto words = ChoicesIn(name.empty() ? description : name); !words.empty()) {
      value.kind = Value::kWords;
      value.words = std::move(words);
    } else if (value.kind == Value::kAny) {
      value.kind = KindOf(description);  // CLI::ExistingFile and similar checks
    }
  }
  return value;
}

Option OptionOf(CLI::Option* from) {
  Option option;
  for (const std::string& name : from->get_snames()) option.names.push_back("-" + name);
  for (const std::string& name : from->get_lnames()) option.names.push_back("--" + name);
  if (from->get_positional()) option.names = {from->get_name(true)};
  option.description = from->get_description();
  option.value = ValueOf(from);
  option.repeats = from->get_expected_max() > 1;
  return option;
}

Command CommandOf(CLI::App* app, const std::string& parent) {
  Command command;
  command.name = app->get_name();
  command.path = parent.empty() ? command.name : parent + " " + command.name;
  command.description = app->get_description();
  for (CLI::Option* option :
       app->get_options([](const CLI::Option* o) { return !o->get_group().empty(); })) {
    (option->get_positional() ? command.positionals : command.options).push_back(OptionOf(option));
  }
  for (CLI::App* sub : app->get_subcommands(
           [](const CLI::App* s) { return !s->get_group().empty() && !s->get_name().empty(); })) {
    command.subcommands.push_back(CommandOf(sub, command.path));
  }
  return command;
}

void Collect(const Command& command, std::vector<const Command*>* all) {
  all->push_back(&command);
  for (const Command& sub : command.subcommands) Collect(sub, all);
}

}  // namespace

std::vector<const Command*> AllCommands(const Command& program) {
  std::vector<const Command*> all;
  Collect(program, &all);
  return all;
}

std::vector<std::string> SubcommandPaths(const Command& program) {
  std::vector<std::string> paths;
  for (const Command* command : AllCommands(program)) {
    if (command != &program) paths.push_back(command->path);
  }
  return paths;
}

std::vector<std::string> ValuedOptions(const Command& program) {
  std::vector<std::string> valued;
  for (const Command* command : AllCommands(program)) {
    for (const Option& option : command->options) {
      if (option.value.kind == Value::kNone) continue;
      for (const std::string& name : option.names) valued.push_back(command->path + " " + name);
    }
  }
  return valued;
}

std::string Joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace completion

const std::vector<std::string>& CompletionShells() {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  return shells;
}

std::string CompletionScript(CLI::App* app, const std::string& shell) {
  const completion::Command program = completion::CommandOf(app, "");
  if (shell == "zsh") return completion::ZshScript(program);
  return shell == "fish" ? completion::FishScript(program) : completion::BashScript(program);
}

CLI::Validator Offer(const std::vector<std::string>& words) {
  return {[](std::string&) { return std::string(); }, "", Braced(words)};
}

CLI::Validator OfferPrinted(const std::string& command) {
  return {[](std::string&) { return std::string(); }, "", completion::kPrintedBy + command};
}

}  // namespace plumbline
