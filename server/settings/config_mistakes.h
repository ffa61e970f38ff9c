// What is wrong with a configuration: all of it is gathered and told in one run, each mistake with
// the line of the file that it stands in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace plumbline::server {

// Keys read "listen.grpc"; of tables that occur often "access[1].scopes", numbered from 0; a table
// is a key, too. Not thread-safe.
class ConfigMistakes {
 public:
  void Stands(const std::string& key, const std::string& file, uint32_t line);
  // The command line says it by this option, whatever the file says.
  void GivenBy(const std::string& key, const std::string& option) { options_[key] = option; }

  // `text`: "expected ..., found ...".
  void Add(const std::string& key, const std::string& text);
  // Is something wrong with this key, or with one of this table? Then what follows from it is
  // better left unsaid.
  bool Has(std::string_view key) const;

  // InvalidArgument: a line for each mistake, "FILE:LINE: KEY: TEXT" in the order of the file, then
  // "--OPTION: TEXT", or "KEY: TEXT" where nobody says where it comes from.
  absl::Status ToStatus() const;

 private:
  struct Place {
    std::string file;
    uint32_t line = 0;
  };
  struct Mistake {
    std::string key;
    uint32_t line;  // the last one: in no file
    std::string text;
  };
  const Place* PlaceOf(std::string key) const;

  std::map<std::string, Place> places_;
  std::map<std::string, std::string> options_;  // by key
  std::vector<Mistake> mistakes_;
};

// "access.scopes" of "access[1].scopes".
std::string KeyName(std::string_view key);

// "expected a, b or c, found "x"", and the nearest of them; empty where `word` is one of them.
std::string NoneOf(const std::vector<std::string>& words, const std::string& word);

}  // namespace plumbline::server
