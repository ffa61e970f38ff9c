#include "audit/mcp/arguments.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::audit::mcp {
namespace {

constexpr size_t kMostShown = 64;  // bytes of a value in a message

std::string Shown(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  std::string text = LineOf(value);
  if (text.size() > kMostShown) text = ValidUtf8(text.substr(0, kMostShown)) + "...";
  return text;
}

std::string Expected(const std::string& what, const Json& value) {
  return absl::StrCat("expected ", what, ", found ", Shown(value));
}

std::string CheckText(const Json& schema, const Json& value) {
  if (!value.is_string()) return Expected("a string", value);
  const size_t most = schema.value("maxLength", size_t{4096});
  if (value.get_ref<const std::string&>().size() > most)
    return absl::StrCat("expected at most ", most, " bytes");
  const auto words = schema.find("enum");
  if (words == schema.end() || std::find(words->begin(), words->end(), value) != words->end())
    return "";
  return Expected("one of " + words->dump(), value);
}

std::string CheckInteger(const Json& schema, const Json& value) {
  const auto low = schema.value("minimum", int64_t{INT64_MIN});
  const auto high = schema.value("maximum", int64_t{INT64_MAX});
  const std::string range = schema.contains("minimum") && schema.contains("maximum")
                                ? absl::StrCat("an integer from ", low, " to ", high)
                                : "an integer of 64 bits";
  // JSON Schema accepts 5.0 as an integer.
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool whole = number >= -9007199254740992.0 && number <= 9007199254740992.0 &&
                       number == static_cast<double>(static_cast<int64_t>(number));
    return whole ? CheckInteger(schema, static_cast<int64_t>(number)) : Expected(range, value);
  }
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
    return Expected(range, value);
  return "";
}

std::string CheckTexts(const Json& schema, const Json& value) {
  if (!value.is_array()) return Expected("an array of strings", value);
  const size_t most = schema.value("maxItems", size_t{64});
  if (value.size() > most) return absl::StrCat("expected at most ", most, " elements");
  for (const Json& element : value) {
    if (std::string wrong = CheckText(schema["items"], element); !wrong.empty()) return wrong;
  }
  return "";
}

std::string CheckValue(const Json& schema, const Json& value) {
  const std::string type = schema.value("type", "");
  if (type == "string") return CheckText(schema, value);
  if (type == "integer") return CheckInteger(schema, value);
  if (type == "array") return CheckTexts(schema, value);
  return value.is_boolean() ? "" : Expected("true or false", value);
}

}  // namespace

std::string CheckArguments(const Json& schema, const Json& arguments) {
  const Json& properties = schema["properties"];
  for (const auto& [name, value] : arguments.items()) {
    const auto property = properties.find(name);
    if (property == properties.end()) {
      std::vector<std::string> known;
      for (const auto& [key, unused] : properties.items()) known.push_back(key);
      std::string list;
      for (const std::string& key : known) absl::StrAppend(&list, list.empty() ? "" : ", ", key);
      return absl::StrCat("expected the arguments ", list.empty() ? "none" : list, ", found ",
                          Shown(name));
    }
    if (std::string wrong = CheckValue(*property, value); !wrong.empty())
      return absl::StrCat(name, ": ", wrong);
  }
  for (const Json& name : schema.value("required", Json::array())) {
    const std::string key = name.get<std::string>();
    if (!arguments.contains(key)) return absl::StrCat(key, ": expected, found nothing");
  }
  return "";
}

std::string TextArgument(const Json& arguments, const char* name) {
  return arguments.value(name, std::string());
}

int64_t NumberArgument(const Json& arguments, const char* name, int64_t otherwise) {
  return arguments.value(name, otherwise);
}

bool FlagArgument(const Json& arguments, const char* name, bool otherwise) {
  return arguments.value(name, otherwise);
}

}  // namespace plumbline::audit::mcp
