#include "server/settings/config_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/near_word.h"
#include "base/toml_words.h"

namespace plumbline::server::keys {

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

void ReadSection(const std::string& file, const std::string& table_key, const toml::table& table,
                 const Section& known, ConfigMistakes* mistakes) {
  for (const auto& [name, node] : table) {
    const std::string word(name.str());
    const std::string key = absl::StrCat(table_key, ".", word);
    mistakes->Stands(key, file, node.source().begin.line);
    const auto setter = known.find(word);
    if (setter == known.end()) {
      mistakes->Add(key, absl::StrCat("unknown key in [", KeyName(table_key), "]",
                                      MeantOrKnown(word, NamesOf(known))));
      continue;
    }
    const std::string expected = setter->second(node);
    if (expected.empty()) continue;
    mistakes->Add(key, absl::StrCat("expected ", expected, ", found ", TomlFound(node)));
  }
}

}  // namespace plumbline::server::keys
