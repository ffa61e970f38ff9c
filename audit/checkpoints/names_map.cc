#include "audit/checkpoints/names_map.h"

#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/files/whole_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostMapBytes = size_t{16} << 20;

// Matches a name and returns the texts of the pattern's stars, each as short as possible.
bool Fits(std::string_view pattern, std::string_view name, std::vector<std::string>* stars) {
  size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  name.remove_prefix(star);
  // The text between two stars is searched from the left: the earliest match leaves the most text
  // for the remaining pattern.
  for (;;) {
    pattern.remove_prefix(star + 1);
    star = pattern.find('*');
    if (star == std::string_view::npos) break;
    const size_t at = name.find(pattern.substr(0, star));
    if (at == std::string_view::npos) return false;
    stars->emplace_back(name.substr(0, at));
    name.remove_prefix(at + star);
  }
  if (!name.ends_with(pattern)) return false;
  stars->emplace_back(name.substr(0, name.size() - pattern.size()));
  return true;
}

// Returns the error message for an unusable map.
std::string WrongMap(const std::string& path, uint32_t line, const std::string& what) {
  return absl::StrCat(path, ":", line, ": expected ", what);
}

}  // namespace

// Returns the first pattern that matches. If none does, returns patterns_.size().
size_t NamesMap::First(const std::string& name, std::vector<std::string>* stars) const {
  size_t i = 0;
  for (; i < patterns_.size(); ++i) {
    stars->clear();
    if (Fits(patterns_[i].first, name, stars)) break;
  }
  return i;
}

std::string NamesMap::OfB(const std::string& name_of_a) const {
  std::vector<std::string> stars;
  const size_t first = First(name_of_a, &stars);
  if (first == patterns_.size()) return name_of_a;
  // Build B's name: insert the texts of the stars in their order.
  std::string out;
  size_t next = 0;
  for (const char c : patterns_[first].second) {
    if (c == '*') {
      out += stars[next++];
    } else {
      out += c;
    }
  }
  return out;
}

// A pattern that matches no name is a mistake in the map. Patterns that leave names out may match
// names of B alone.
std::vector<std::string> NamesMap::Unfitted(const std::vector<std::string>& names_of_a) const {
  std::vector<bool> fitted(patterns_.size() + 1);
  std::vector<std::string> stars;
  for (const std::string& name : names_of_a) fitted[First(name, &stars)] = true;
  std::vector<std::string> out;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!fitted[i] && !patterns_[i].second.empty()) out.push_back(patterns_[i].first);
  }
  return out;
}

bool NamesMap::Renames() const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [](const auto& pattern) { return !pattern.second.empty(); });
}

void NamesMap::Add(std::string a, std::string b) {
  leaves_out_ |= b.empty();
  patterns_.emplace_back(std::move(a), std::move(b));
}

// ---- names that are left out: those with an empty name in B ----

const std::string* NamesMap::LeavesOut(const std::string& name) const {
  if (!leaves_out_) return nullptr;  // fast path: called for every name
  std::vector<std::string> stars;
  const size_t first = First(name, &stars);
  const bool out = first < patterns_.size() && patterns_[first].second.empty();
  return out ? &patterns_[first].first : nullptr;
}

std::vector<std::string> NamesMap::LeavingOut() const {
  std::vector<std::string> out;
  for (const auto& [a, b] : patterns_) {
    if (b.empty()) out.push_back(a);
  }
  return out;
}

bool LeftOut::Take(const NamesMap& names, const std::string& name) {
  const std::string* const pattern = names.LeavesOut(name);
  if (pattern == nullptr) return false;
  Names& names_of = by[*pattern];
  if (names_of.all.empty()) names_of.first = name;
  names_of.all.insert(name);
  return true;
}

// ---- the file ----

absl::StatusOr<NamesMap> ReadNamesMap(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostMapBytes);
  if (!text.ok()) return text.status();
  toml::table table;
  try {
    table = toml::parse(*text, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        WrongMap(path, error.source().begin.line,
                 absl::StrCat("TOML, found: ", std::string(error.description()))));
  }
  const toml::table* names = table["names"].as_table();
  if (names == nullptr || table.size() != 1)
    return absl::InvalidArgumentError(WrongMap(path, 1, "only a table [names]"));
  // toml++ sorts a table; line numbers restore the order of the file.
  std::map<std::pair<uint32_t, uint32_t>, std::pair<std::string, std::string>> ordered;
  for (const auto& [key, node] : *names) {
    const auto line = key.source().begin.line;
    const std::optional<std::string> value = node.value_exact<std::string>();
    if (!value) return absl::InvalidArgumentError(WrongMap(path, line, "a name of B as text"));
    const std::string a(key.str());
    if (std::count(value->begin(), value->end(), '*') > std::count(a.begin(), a.end(), '*'))
      return absl::InvalidArgumentError(
          WrongMap(path, line, "as many * in B's name as in A's, or fewer"));
    ordered[{line, key.source().begin.column}] = {a, *value};
  }
  NamesMap map;
  for (auto& [place, names_of] : ordered)
    map.Add(std::move(names_of.first), std::move(names_of.second));
  return map;
}

}  // namespace plumbline::audit
