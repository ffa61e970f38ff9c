#include "server/config_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/near_word.h"
#include "base/toml_words.h"

namespace plumbline::server::keys {

std::string Where(const std::string& path, const toml::node& node) {
  return absl::StrCat(path, ":", node.source().begin.line);
}

Setter Text(std::string* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_string()) return "a string";
    *out = **n.as_string();
    return "";
  };
}

Setter Flag(bool* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_boolean()) return "true or false";
    *out = **n.as_boolean();
    return "";
  };
}

Setter Integer(int64_t* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_integer()) return "an integer";
    *out = **n.as_integer();
    return "";
  };
}

Setter Number(double* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_number()) return "a number";
    *out = *n.value<double>();
    return "";
  };
}

Setter Texts(std::vector<std::string>* out) {
  return [out](const toml::node& n) -> std::string {
    const toml::array* array = n.as_array();
    if (array == nullptr) return "an array of strings";
    std::vector<std::string> values;
    for (const toml::node& element : *array) {
      if (!element.is_string()) return "an array of strings";
      values.push_back(**element.as_string());
    }
    *out = std::move(values);
    return "";
  };
}

std::string MeantOrKnown(std::string_view word, const std::vector<std::string>& known) {
  const std::string meant = DidYouMean(word, known);
  return meant.empty() ? absl::StrCat("; known: ", absl::StrJoin(known, ", ")) : meant;
}

absl::Status ReadSection(const std::string& path, const std::string& name, const toml::table& table,
                         const Section& known) {
  for (const auto& [key, node] : table) {
    const std::string k(key.str());
    const auto setter = known.find(k);
    if (setter == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": unknown key \"", k,
                                                     "\" in [", name, "]",
                                                     MeantOrKnown(k, NamesOf(known))));
    }
    const std::string expected = setter->second(node);
    if (!expected.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": ", name, ".", k,
                                                     " must be ", expected, ", found ",
                                                     TomlTypeName(node)));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server::keys
