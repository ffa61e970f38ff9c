// Reads the fields of a TOML table. Only the first mistake is kept; all later fields are read as
// absent.
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
  // Records "PATH:LINE: expected ...", if it is the first mistake.
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

// The fields of one table. A field that is absent or wrong returns nothing. A field that was not
// read is a mistake (NoOthers).
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
  // Returns a list of at least one text. If `node` is not null, stores the array there.
  std::vector<std::string> Texts(const char* key, Need need, const toml::node** node = nullptr);
  // Returns the tables of an array of tables. If it is absent, returns none.
  std::vector<const toml::table*> Tables(const char* key);
  const toml::table* Table(const char* key, Need need);
  // Accepts a field without reading it.
  void Ignore(const char* key) { known_.insert(key); }
  // Rejects all fields that were not read. Call after all others.
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
