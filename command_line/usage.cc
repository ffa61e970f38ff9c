#include "command_line/usage.h"

// CLI11's code for help and configuration is compiled into each file that includes all of CLI11,
// which takes seconds. Only this file does so; others link it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/near_word.h"

namespace plumbline {
namespace {

using Words = std::vector<std::string>;

std::string Listed(const Words& words, const std::string& last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? last : ", ") + words[i];
  }
  return text;
}

std::string Found(const std::string& word) { return ", found \"" + word + "\""; }

// Returns the program and the subcommands that the line named, each below the one before it.
std::vector<const CLI::App*> Named(const CLI::App& app) {
  std::vector<const CLI::App*> named = {&app};
  while (!named.back()->get_subcommands().empty()) {
    named.push_back(named.back()->get_subcommands().back());
  }
  return named;
}

// Returns "query series"; empty for the program itself.
std::string PathOf(const std::vector<const CLI::App*>& named) {
  std::string path;
  for (size_t i = 1; i < named.size(); ++i) path += (i == 1 ? "" : " ") + named[i]->get_name();
  return path;
}

Words SubcommandsOf(const CLI::App& app) {
  Words names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

Words OptionsOf(const CLI::App& app) {
  Words names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

std::string UnknownOption(const CLI::App& app, const std::string& word) {
  const std::string found = word.substr(0, word.find('='));
  const std::string name = found.substr(std::min(found.find_first_not_of('-'), found.size()));
  const std::string meant = NearestWord(name, OptionsOf(app));
  return "expected one of its options" + Found(found) +
         (meant.empty() ? "" : "; did you mean --" + meant + "?");
}

std::string UnknownWord(const CLI::App& app, const std::string& word) {
  const Words subcommands = SubcommandsOf(app);
  if (subcommands.empty()) return "expected no further word" + Found(word);
  return "expected a subcommand (" + Listed(subcommands, ", ") + ")" + Found(word) +
         DidYouMean(word, subcommands);
}

// Returns the first word that no (sub)command took, and the command below which it is.
std::optional<std::string> NotTaken(std::vector<const CLI::App*>* named) {
  for (size_t i = 0; i < named->size(); ++i) {
    const CLI::App& app = *(*named)[i];
    for (const std::string& word : app.remaining()) {
      if (word == "--") continue;
      named->resize(i + 1);
      const bool option = word.size() > 1 && word[0] == '-';
      return option ? UnknownOption(app, word) : UnknownWord(app, word);
    }
  }
  return std::nullopt;
}

std::string Missing(const CLI::App& app, const std::string& what) {
  const std::string name = what.substr(0, what.rfind(" is required"));
  if (name == "A subcommand") {
    return "expected a subcommand (" + Listed(SubcommandsOf(app), ", ") + ")";
  }
  const CLI::Option* option = app.get_option_no_throw(name);
  const bool valued = option != nullptr && !option->get_positional();
  return "expected " + name + (valued ? " " + option->get_type_name() : "");
}

// Rewords CLI11's message, "OPTION: 1 required TYPE missing" and similar.
std::string WrongCount(const std::string& what) {
  const std::string option = what.substr(0, what.find(':'));
  const size_t received = what.rfind("received ");
  if (what.find(" missing") != std::string::npos) return option + ": expected a value, found none";
  if (received == std::string::npos) return what;
  return option + ": expected it once, found it " + what.substr(received + 9) + " times";
}

// Rewords "Could not convert: OPTION = VALUE".
std::string NotConverted(const CLI::App& app, const std::string& what) {
  const std::string_view begin = "Could not convert: ";
  const size_t equals = what.find(" = ");
  if (what.rfind(begin, 0) != 0 || equals == std::string::npos) return what;
  const std::string name = what.substr(begin.size(), equals - begin.size());
  const CLI::Option* option = app.get_option_no_throw(name);
  const bool flag = option != nullptr && option->get_expected_max() == 0;
  return name + (flag ? ": expected no value" : ": expected a number in its range") +
         Found(what.substr(equals + 3));
}

}  // namespace

std::string Braced(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
  return "{" + all + "}";
}

CLI::Validator OneOf(const std::vector<std::string>& words) {
  const auto check = [words](std::string& value) -> std::string {
    if (std::find(words.begin(), words.end(), value) != words.end()) return "";
    return "expected " + Listed(words, " or ") + Found(value) + DidYouMean(value, words);
  };
  // Also sets it as the name: completion finds it there if help describes the check differently.
  return {check, Braced(words), Braced(words)};
}

CLI::Validator Between(int64_t low, int64_t high) {
  const std::string bounds = std::to_string(low) + " to " + std::to_string(high);
  const auto check = [=](std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    const bool fits = error == std::errc() && rest == end && value >= low && value <= high;
    return fits ? "" : "expected " + bounds + Found(text);
  };
  return {check, "in [" + bounds + "]"};
}

CLI::Validator AtLeastZero() {
  const auto check = [](std::string& text) -> std::string {
    double value = 0;
    const bool number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
    return number && value >= 0 ? "" : "expected a number of at least 0" + Found(text);
  };
  return {check, ""};
}

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<const CLI::App*> named = Named(app);
  const std::string what = error.what();
  std::string text;
  if (const auto unknown = NotTaken(&named)) {
    text = *unknown;  // first: a misspelt option may be the missing one
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    text = Missing(*named.back(), what);
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    text = WrongCount(what);
  } else if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    text = NotConverted(*named.back(), what);
  } else {
    text = what;
  }
  const std::string path = PathOf(named);
  const std::string help = app.get_name() + (path.empty() ? "" : " " + path) + " --help";
  const bool hint = text.back() == '?';
  return (path.empty() ? "" : path + ": ") + text + (hint ? "" : "; see " + help);
}

}  // namespace plumbline
