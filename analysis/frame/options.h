// Options of rules: which exist, and their values.
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

namespace plumbline::analysis {

// An option, as set by `--set RULE.OPTION=VALUE`.
struct OptionInfo {
  enum class Type {
    kNumber,
    kInteger,
    kFlag,
    kChoice,
    kText
  };  // kText: if set again, the value is appended
  const char* name;
  Type type;
  const char* unit;           // "bits", "steps", ... or ""
  const char* default_value;  // as text
  const char* reason;         // why this default
  const char* choices = "";   // kChoice: "a|b|c"
  double low = 0;             // kNumber, kInteger: inclusive range
  double high = 0;
  std::string (*check)(const std::string& value) = nullptr;  // kText: returns what is wrong, or ""
};

// Values of one rule's options, validated against their OptionInfo.
class Options {
 public:
  // `rule` is the rule's id, for error messages. Both arguments must outlive this object.
  Options(const char* rule, std::span<const OptionInfo> known);

  // Returns an error text. On success, returns an empty string.
  std::string Set(std::string_view option, std::string_view value);

  // The option must exist in the rule's table and have that type.
  double Number(std::string_view option) const;
  int64_t Integer(std::string_view option) const;
  bool Flag(std::string_view option) const;
  const std::string& Choice(std::string_view option) const;
  const std::string& Text(std::string_view option) const;

  // Returns the roles that the user assigned to series by name; may be empty. Lives as long as this
  // object.
  const SeriesRoles& roles() const { return *roles_; }
  void SetRoles(std::shared_ptr<const SeriesRoles> roles) { roles_ = std::move(roles); }

  // Returns "option=value" of every option, set or not, separated by blanks. Equal options give
  // equal texts.
  std::string Words() const;

 private:
  const char* rule_;
  std::span<const OptionInfo> known_;
  std::map<std::string, std::string, std::less<>> values_;
  std::shared_ptr<const SeriesRoles> roles_;  // never null
};

}  // namespace plumbline::analysis
