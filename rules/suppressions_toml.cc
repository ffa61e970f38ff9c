// Parses suppressions as users write them.
#include <toml++/toml.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files/whole_file.h"
#include "base/near_word.h"
#include "base/toml_words.h"
#include "rules/catalogue.h"
#include "rules/suppressions.h"

namespace plumbline::rules {
namespace {

constexpr size_t kLeastDigits = 8;

bool DayFrom(const toml::date& date, int32_t* day) {
  const std::chrono::year_month_day ymd{std::chrono::year{date.year},
                                        std::chrono::month{date.month}, std::chrono::day{date.day}};
  if (!ymd.ok()) return false;
  *day = static_cast<int32_t>(std::chrono::sys_days{ymd}.time_since_epoch().count());
  return true;
}

// Reads a date, with or without quotes. Returns what was expected if it is invalid.
std::string ReadDate(const toml::node& node, int32_t* day) {
  constexpr const char* kExpected = "a date (2026-12-31)";
  if (const auto* date = node.as_date()) return DayFrom(**date, day) ? "" : kExpected;
  if (!node.is_string()) return kExpected;
  unsigned year = 0, month = 0, date = 0;
  char rest = 0;
  const std::string& text = **node.as_string();
  if (std::sscanf(text.c_str(), "%4u-%2u-%2u%c", &year, &month, &date, &rest) != 3) {
    return kExpected;
  }
  return DayFrom({year, month, date}, day) ? "" : kExpected;
}

std::string ReadText(const toml::node& node, std::string* out) {
  if (!node.is_string() || (**node.as_string()).empty()) return "a text that is not empty";
  *out = **node.as_string();
  return "";
}

std::string ReadSteps(const toml::node& node, Suppression* s) {
  constexpr const char* kExpected = "[first, last], two steps of at least 0 in order";
  const toml::array* pair = node.as_array();
  if (pair == nullptr || pair->size() != 2 || !pair->is_homogeneous<int64_t>()) return kExpected;
  s->has_steps = true;
  s->step_first = **(*pair)[0].as_integer();
  s->step_last = **(*pair)[1].as_integer();
  return s->step_first >= 0 && s->step_last >= s->step_first ? "" : kExpected;
}

std::string ReadFingerprint(const toml::node& node, std::string* out) {
  std::string expected =
      absl::StrCat("the first ", kLeastDigits, " or more hexadecimal digits of a fingerprint");
  if (std::string wrong = ReadText(node, out); !wrong.empty()) return expected;
  const bool hex = out->find_first_not_of("0123456789abcdef") == std::string::npos;
  return hex && out->size() >= kLeastDigits && out->size() <= 32 ? "" : expected;
}

std::string ReadRule(const toml::node& node, std::string* out) {
  if (std::string wrong = ReadText(node, out); !wrong.empty()) return "a glob over rule ids";
  if (SomeRuleMatches(*out)) return "";
  const std::string near(NearestRule(*out));
  return absl::StrCat("a glob that some rule matches (plumb rules lists them)",
                      near.empty() ? "" : absl::StrCat(", perhaps \"", near, "\""));
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<std::vector<Suppression>> Read(const std::string& text) {
    toml::table root;
    try {
      root = toml::parse(text, path_);
    } catch (const toml::parse_error& e) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ":", e.source().begin.line, ": ", std::string(e.description())));
    }
    for (const auto& [key, node] : root) {
      const toml::array* list = node.as_array();
      if (key.str() != "suppress" || list == nullptr || !list->is_array_of_tables()) {
        return Wrong(node, absl::StrCat("expected [[suppress]] tables alone, found ",
                                        std::string(key.str())));
      }
      for (const toml::node& entry : *list) {
        if (auto s = ReadEntry(*entry.as_table()); !s.ok()) return s;
      }
    }
    return std::move(list_);
  }

 private:
  absl::Status Wrong(const toml::node& node, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", node.source().begin.line, ": ", what));
  }

  absl::Status ReadEntry(const toml::table& table) {
    Suppression s;
    s.line = table.source().begin.line;
    using Setter = std::function<std::string(const toml::node&)>;
    const std::map<std::string, Setter> known = {
        {"rule", [&](const toml::node& n) { return ReadRule(n, &s.rule); }},
        {"run", [&](const toml::node& n) { return ReadText(n, &s.run); }},
        {"layer", [&](const toml::node& n) { return ReadText(n, &s.layer); }},
        {"fingerprint", [&](const toml::node& n) { return ReadFingerprint(n, &s.fingerprint); }},
        {"steps", [&](const toml::node& n) { return ReadSteps(n, &s); }},
        {"reason", [&](const toml::node& n) { return ReadText(n, &s.reason); }},
        {"expires", [&](const toml::node& n) { return ReadDate(n, &s.expires); }},
    };
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      const auto setter = known.find(name);
      if (setter == known.end()) return Unknown(node, name, known);
      if (std::string expected = setter->second(node); !expected.empty()) {
        return Wrong(node, absl::StrCat(name, " must be ", expected, ", found ", TomlFound(node)));
      }
    }
    for (const char* required : {"rule", "reason", "expires"}) {
      if (table.contains(required)) continue;
      return Wrong(table, absl::StrCat("a suppression needs ", required,
                                       ": rule (a glob), reason (a text) and expires (a date)"));
    }
    list_.push_back(std::move(s));
    return absl::OkStatus();
  }

  template <typename Map>
  absl::Status Unknown(const toml::node& node, const std::string& name, const Map& known) const {
    std::vector<std::string> names;
    for (const auto& [key, setter] : known) names.push_back(key);
    const std::string meant = DidYouMean(name, names);
    return Wrong(node,
                 absl::StrCat("unknown key \"", name, "\" in [[suppress]]",
                              meant.empty() ? "; known: " + absl::StrJoin(names, ", ") : meant));
  }

  const std::string& path_;
  std::vector<Suppression> list_;
};

}  // namespace

absl::StatusOr<std::vector<Suppression>> ParseSuppressions(const std::string& text,
                                                           const std::string& path) {
  return Reader(path).Read(text);
}

absl::StatusOr<std::vector<Suppression>> LoadSuppressions(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  return text.ok() ? ParseSuppressions(*text, path) : text.status();
}

}  // namespace plumbline::rules
