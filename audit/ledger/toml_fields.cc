#include "audit/ledger/toml_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/near_word.h"
#include "base/toml_words.h"

namespace plumbline::audit {

void TomlMistake::AtLine(int line, const std::string& expected) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(path_, ":", line, ": expected ", expected));
}

const toml::node* TomlFields::Find(const char* key, Need need) {
  known_.insert(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr && need == kRequired) mistake_->At(table_, absl::StrCat(key, " in ", name_));
  return mistake_->ok() ? node : nullptr;
}

void TomlFields::Wrong(const toml::node& node, const char* key, const std::string& expected) {
  mistake_->At(node, absl::StrCat(key, " to be ", expected, ", found ", TomlFound(node)));
}

std::optional<double> TomlFields::Positive(const char* key, Need need) {
  const toml::node* node = Find(key, need);
  if (node == nullptr) return std::nullopt;
  std::optional<double> value;
  if (node->is_integer()) value = static_cast<double>(**node->as_integer());
  if (node->is_floating_point()) value = **node->as_floating_point();
  if (value && *value > 0 && std::isfinite(*value)) return value;
  Wrong(*node, key, "a number above 0");
  return std::nullopt;
}

std::optional<int64_t> TomlFields::Integer(const char* key, Need need) {
  const toml::node* node = Find(key, need);
  if (node == nullptr) return std::nullopt;
  if (node->is_integer()) return **node->as_integer();
  Wrong(*node, key, "a whole number");
  return std::nullopt;
}

std::optional<bool> TomlFields::Flag(const char* key) {
  const toml::node* node = Find(key, kOptional);
  if (node == nullptr) return std::nullopt;
  if (node->is_boolean()) return **node->as_boolean();
  Wrong(*node, key, "true or false");
  return std::nullopt;
}

std::optional<std::string> TomlFields::Text(const char* key, Need need) {
  const toml::node* node = Find(key, need);
  if (node == nullptr) return std::nullopt;
  if (node->is_string() && !(**node->as_string()).empty()) return **node->as_string();
  Wrong(*node, key, "a text that is not empty");
  return std::nullopt;
}

std::vector<std::string> TomlFields::Texts(const char* key, Need need, const toml::node** at) {
  std::vector<std::string> texts;
  const toml::node* node = Find(key, need);
  if (at != nullptr) *at = node;
  if (node == nullptr) return texts;
  const toml::array* array = node->as_array();
  if (array == nullptr || array->empty() || !array->is_homogeneous<std::string>()) {
    Wrong(*node, key, "a list of texts, at least one");
    return texts;
  }
  for (const toml::node& text : *array) texts.push_back(**text.as_string());
  return texts;
}

std::vector<const toml::table*> TomlFields::Tables(const char* key) {
  std::vector<const toml::table*> tables;
  const toml::node* node = Find(key, kOptional);
  if (node == nullptr) return tables;
  const toml::array* array = node->as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    Wrong(*node, key, absl::StrCat("tables, [[", key, "]]"));
    return tables;
  }
  for (const toml::node& table : *array) tables.push_back(table.as_table());
  return tables;
}

const toml::table* TomlFields::Table(const char* key, Need need) {
  const toml::node* node = Find(key, need);
  if (node == nullptr) return nullptr;
  if (!node->is_table()) Wrong(*node, key, absl::StrCat("a table, [", key, "]"));
  return node->as_table();
}

void TomlFields::NoOthers() {
  for (const auto& [key, node] : table_) {
    const std::string name(key.str());
    if (known_.contains(name)) continue;
    const std::string meant = DidYouMean(name, known_);
    mistake_->AtLine(static_cast<int>(key.source().begin.line),
                     absl::StrCat("one of ", absl::StrJoin(known_, ", "), " in ", name_, ", found ",
                                  name, meant));
  }
}

}  // namespace plumbline::audit
