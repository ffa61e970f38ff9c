#include "audit/readers/scalars/scalar_map.h"

#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/input/file_places.h"
#include "audit/readers/input/spelling.h"
#include "base/toml_words.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kKeys[] = {"series", "run", "step", "rank"};
constexpr uint64_t kMostBytes = 1 << 20;

std::string Meant(std::string_view found, std::span<const std::string_view> known) {
  std::string text = Quoted(found);
  if (const auto meant = MeantName(found, known))
    return text + "; did you mean " + std::string(*meant) + "?";
  text += "; known:";
  for (const std::string_view name : known) text += " " + std::string(name);
  return text;
}

// Returns every role that a map may name.
std::vector<std::string_view> ScalarRoles() {
  std::vector<std::string_view> names;
  for (int role = 0; role <= static_cast<int>(SeriesRole::kLast); ++role)
    names.emplace_back(NameOf(static_cast<SeriesRole>(role)));
  return names;
}

class ScalarMapReader {
 public:
  explicit ScalarMapReader(const std::string& path) : path_(path) {}

  absl::Status Read(const toml::table& table, ScalarMap* map) {
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (name == "series") {
        Series(node, &map->roles);
      } else if (name == "run") {
        Text(node, &map->options.run);
      } else if (name == "step") {
        Text(node, &map->options.step);
      } else if (name == "rank") {
        Text(node, &map->options.rank_pattern);
        const absl::Status status = CheckRankPattern(map->options.rank_pattern);
        if (!status.ok()) Wrong(node, std::string(status.message()));
      } else {
        Wrong(node, "expected a key of a map of series, found " + Meant(name, kKeys));
      }
    }
    return status_;
  }

 private:
  void Wrong(const toml::node& node, const std::string& text) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(path_ + ":" + std::to_string(node.source().begin.line) +
                                         ": " + text);
  }

  void Text(const toml::node& node, std::string* out) {
    *out = node.value_or(std::string());
    if (!node.is_string() || out->empty())
      Wrong(node, "expected a non-empty string, found " + TomlFound(node));
  }

  void Series(const toml::node& node, SeriesRoles* roles) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return Wrong(node, "expected a table, found " + TomlFound(node));
    for (const auto& [name, value] : *table) {
      const std::string word = value.value_or(std::string());
      const std::optional<SeriesRole> role = FindRole(word);
      if (!value.is_string() || !role) {
        Wrong(value, "expected a role, found " +
                         (value.is_string() ? Meant(word, ScalarRoles()) : TomlFound(value)));
      } else {
        roles->Set(std::string(name.str()), *role);
      }
    }
  }

  const std::string& path_;
  absl::Status status_;
};

bool HasScalarKey(const toml::table& table) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [&](std::string_view key) { return table.contains(key); });
}

}  // namespace

absl::StatusOr<std::optional<ScalarMap>> ReadScalarMap(const std::string& path) {
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  // Another kind of map is read elsewhere. That reader reports errors of the file.
  if (!file.ok() || file->size() > kMostBytes) return std::nullopt;
  const absl::StatusOr<std::string> text = file->Head(kMostBytes);
  if (!text.ok()) return std::nullopt;
  toml::table table;
  try {
    table = toml::parse(*text, path);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
  if (table.empty()) {
    return absl::InvalidArgumentError(
        path +
        ": expected a map of series (series, run, step, rank; docs/scalars.md) or of columns of "
        "rollout records (columns, ...; docs/rollout_records.md), found an empty map");
  }
  if (!HasScalarKey(table)) return std::nullopt;
  ScalarMap map;
  if (absl::Status status = ScalarMapReader(path).Read(table, &map); !status.ok()) return status;
  return map;
}

}  // namespace plumbline::audit
