// Collects all mistakes of a configuration and reports them together, each with its line in the
// file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace plumbline::server {

// Keys read "listen.grpc"; of repeated tables "access[1].scopes", numbered from 0; a table is a
// key, too. Not thread-safe.
class ConfigMistakes {
 public:
  void Stands(const std::string& key, const std::string& file, uint32_t line);
  // Records that this option of the command line sets the key and overrides the file.
  void GivenBy(const std::string& key, const std::string& option) { options_[key] = option; }

  // `text`: "expected ..., found ...".
  void Add(const std::string& key, const std::string& text);
  // Returns true if this key, or a key of this table, has a mistake. Then mistakes that follow from
  // it should not be reported.
  bool Has(std::string_view key) const;

  // Returns InvalidArgument with a line for each mistake, "FILE:LINE: KEY: TEXT" in the order of
  // the file, then "--OPTION: TEXT", or "KEY: TEXT" if the source is unknown.
  absl::Status ToStatus() const;

 private:
  struct Place {
    std::string file;
    uint32_t line = 0;
  };
  struct Mistake {
    std::string key;
    uint32_t line;  // the largest value: in no file
    std::string text;
  };
  const Place* PlaceOf(std::string key) const;

  std::map<std::string, Place> places_;
  std::map<std::string, std::string> options_;  // by key
  std::vector<Mistake> mistakes_;
};

// Returns "access.scopes" for "access[1].scopes".
std::string KeyName(std::string_view key);

// Returns "expected a, b or c, found "x"", and the nearest of them; empty if `word` is one of them.
std::string NoneOf(const std::vector<std::string>& words, const std::string& word);

}  // namespace plumbline::server
