// Reads tables of a TOML file: each key sets one option; an unknown one is a mistake that names the
// nearest known key.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/settings/config_mistakes.h"

namespace plumbline::server::keys {

// Sets one option from its node. Returns what was expected; empty on success.
using Setter = std::function<std::string(const toml::node&)>;
using Section = std::map<std::string, Setter, std::less<>>;

// Their arguments must outlive the setter.
Setter Text(std::string* out);
Setter Flag(bool* out);
Setter Integer(int64_t* out);
Setter Number(double* out);
Setter Texts(std::vector<std::string>* out);

// Returns "; did you mean \"grpc\"?", or the list of known keys if none is similar.
std::string MeantOrKnown(std::string_view word, const std::vector<std::string>& known);

template <typename Map>
std::vector<std::string> NamesOf(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : map) names.push_back(name);
  return names;
}

// Reads a table. Adds the place of each key, and its mistakes, to `mistakes`; an option whose key
// is wrong keeps its value. `table_key`: "listen", "access[1]".
void ReadSection(const std::string& file, const std::string& table_key, const toml::table& table,
                 const Section& known, ConfigMistakes* mistakes);

}  // namespace plumbline::server::keys
