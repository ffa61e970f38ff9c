// Options of rules, validated when they are set.
#include "analysis/frame/options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "analysis/series/series.h"

namespace plumbline::analysis {
namespace {

const OptionInfo* FindOption(std::span<const OptionInfo> known, std::string_view name) {
  for (const OptionInfo& option : known) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

std::string Names(std::span<const OptionInfo> known) {
  std::string names;
  for (const OptionInfo& option : known)
    absl::StrAppend(&names, names.empty() ? "" : ", ", option.name);
  return names.empty() ? "it has none" : names;
}

bool ParseNumber(const std::string& text, double* value) {
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() && std::isfinite(*value);
}

bool IsChoice(std::string_view choices, std::string_view value) {
  while (true) {
    const size_t bar = choices.find('|');
    if (value == choices.substr(0, bar)) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

// Returns what is wrong with `value` for this option. If it is valid, returns an empty string.
std::string Complaint(const OptionInfo& option, const std::string& value) {
  double number = 0;
  switch (option.type) {
    case OptionInfo::Type::kFlag:
      return value == "on" || value == "off" ? "" : "expected on or off";
    case OptionInfo::Type::kChoice:
      return IsChoice(option.choices, value) ? ""
                                             : absl::StrCat("expected one of ", option.choices);
    case OptionInfo::Type::kText:
      return option.check == nullptr ? "" : option.check(value);
    case OptionInfo::Type::kInteger:
    case OptionInfo::Type::kNumber:
      break;
  }
  const bool whole = option.type == OptionInfo::Type::kInteger;
  if (!ParseNumber(value, &number) || (whole && number != std::floor(number))) {
    return whole ? "expected a whole number" : "expected a number";
  }
  if (!(number >= option.low && number <= option.high)) {
    return absl::StrCat("expected ", option.low, " to ", option.high);
  }
  return "";
}

const std::shared_ptr<const SeriesRoles>& NoRoles() {
  static const auto none = std::make_shared<const SeriesRoles>();
  return none;
}

}  // namespace

Options::Options(const char* rule, std::span<const OptionInfo> known)
    : rule_(rule), known_(known), roles_(NoRoles()) {
  for (const OptionInfo& option : known) values_[option.name] = option.default_value;
}

std::string Options::Set(std::string_view option, std::string_view value) {
  const OptionInfo* known = FindOption(known_, option);
  if (known == nullptr) {
    return absl::StrCat(rule_, " has no option '", std::string(option),
                        "': expected one of: ", Names(known_));
  }
  const std::string text(value);
  const std::string complaint = Complaint(*known, text);
  if (!complaint.empty()) {
    const bool brief = known->type != OptionInfo::Type::kText;  // its check's text is complete
    return absl::StrCat(rule_, ".", known->name, ": ", complaint,
                        brief ? ", found '" + text + "'" : "");
  }
  std::string& held = values_[known->name];
  held = known->type == OptionInfo::Type::kText ? held + text : text;
  return "";
}

std::string Options::Words() const {
  std::string words;
  for (const auto& [option, value] : values_)
    absl::StrAppend(&words, words.empty() ? "" : " ", option, "=", value);
  return words;
}

double Options::Number(std::string_view option) const {
  double value = 0;
  ParseNumber(values_.find(option)->second, &value);
  return value;
}

int64_t Options::Integer(std::string_view option) const {
  return static_cast<int64_t>(Number(option));
}

bool Options::Flag(std::string_view option) const { return values_.find(option)->second == "on"; }

const std::string& Options::Choice(std::string_view option) const {
  return values_.find(option)->second;
}

const std::string& Options::Text(std::string_view option) const { return Choice(option); }

}  // namespace plumbline::analysis
