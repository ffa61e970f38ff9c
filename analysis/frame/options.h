// Options of rules: what may be set, and what is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace plumbline {
class SeriesRoles;  // analysis/series
}

namespace plumbline::rules {

// An option as `--set RULE.OPTION=VALUE` sets it.
struct OptionInfo {
  enum class Type { kNumber, kInteger, kFlag, kChoice, kText };  // kText: set again, it is appended
  const char* name;
  Type type;
  const char* unit;           // "bits", "steps", ... or ""
  const char* default_value;  // as text
  const char* reason;         // why this default
  const char* choices = "";   // kChoice: "a|b|c"
  double low = 0;             // kNumber, kInteger: inclusive range
  double high = 0;
  std::string (*check)(const std::string& value) = nullptr;  // kText: what is wrong; "": nothing
};

// Values of one rule's options, validated against their OptionInfo.
class Options {
 public:
  // `rule`: its id, for complaints; both must outlive this.
  Options(const char* rule, std::span<const OptionInfo> known);

  // Returns an error text, empty on success.
  std::string Set(std::string_view option, std::string_view value);

  // The option must exist in the rule's table and have that type.
  double Number(std::string_view option) const;
  int64_t Integer(std::string_view option) const;
  bool Flag(std::string_view option) const;
  const std::string& Choice(std::string_view option) const;
  const std::string& Text(std::string_view option) const;

  // What the user said of series by name; empty where nobody did. Lives as long as this.
  const SeriesRoles& roles() const { return *roles_; }
  void SetRoles(std::shared_ptr<const SeriesRoles> roles) { roles_ = std::move(roles); }

  // "option=value" of every option, set or not, separated by blanks: equal for equal options.
  std::string Words() const;

 private:
  const char* rule_;
  std::span<const OptionInfo> known_;
  std::map<std::string, std::string, std::less<>> values_;
  std::shared_ptr<const SeriesRoles> roles_;  // never null
};

}  // namespace plumbline::rules
