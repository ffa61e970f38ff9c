// Fields of a TOML table with words for what is wrong: the first mistake is kept, and everything
// after it is read as nothing.
#pragma once

#include <toml++/toml.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace plumbline::audit {

class TomlMistake {
 public:
  explicit TomlMistake(std::string path) : path_(std::move(path)) {}
  // "PATH:LINE: expected ...", of the first call.
  void At(const toml::node& node, const std::string& expected) {
    AtLine(static_cast<int>(node.source().begin.line), expected);
  }
  void AtLine(int line, const std::string& expected);
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  std::string path_;
  absl::Status status_;
};

// One table. Fields that are absent or wrong give nothing; what nobody asked for is a mistake.
class TomlFields {
 public:
  // `name`: as in "[[run]]".
  TomlFields(const toml::table& table, std::string name, TomlMistake* mistake)
      : table_(table), name_(std::move(name)), mistake_(mistake) {}

  enum Need { kRequired, kOptional };
  std::optional<double> Positive(const char* key, Need need);
  std::optional<int64_t> Integer(const char* key, Need need);
  std::optional<bool> Flag(const char* key);
  std::optional<std::string> Text(const char* key, Need need);  // not empty
  // Texts, at least one; `node`, where not null, is the array.
  std::vector<std::string> Texts(const char* key, Need need, const toml::node** node = nullptr);
  // Tables of an array of tables; none where it is absent.
  std::vector<const toml::table*> Tables(const char* key);
  const toml::table* Table(const char* key, Need need);
  // A field that may be there and says nothing.
  void Ignore(const char* key) { known_.insert(key); }
  // After all fields: others are unknown.
  void NoOthers();

  const toml::table& table() const { return table_; }

 private:
  const toml::node* Find(const char* key, Need need);
  void Wrong(const toml::node& node, const char* key, const std::string& expected);

  const toml::table& table_;
  std::string name_;
  TomlMistake* mistake_;
  std::set<std::string> known_;
};

}  // namespace plumbline::audit
