#include "audit/readers/rollout/column_map.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <sstream>

#include "audit/readers/input/file.h"
#include "audit/readers/input/spelling.h"
#include "audit/readers/rollout/known_maps.h"

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

// Includes the keys of a map of series (scalars/scalar_map.h), because a file without columns of
// either kind is also read here.
constexpr std::string_view kAllTopKeys[] = {
    "record",    "step_from_name", "lists_of_one", "drop_first", "columns",
    "constants", "series",         "run",          "step",       "rank"};
constexpr std::string_view kSourceKeys[] = {"path", "scale", "align", "each"};

// Reads a map. Keeps the first error as "FILE:LINE: expected ...".
class MapReader {
 public:
  explicit MapReader(std::string path) : path_(std::move(path)) { map_.format = "rollout-jsonl"; }

  absl::StatusOr<ColumnMap> Read(const std::string& text) {
    toml::table table;
    try {
      table = toml::parse(text, path_);
    } catch (const toml::parse_error& error) {
      return absl::InvalidArgumentError(
          path_ + ":" + std::to_string(error.source().begin.line) +
          ": expected TOML, found: " + std::string(error.description()));
    }
    for (const auto& [key, node] : table) Top(key, node);
    if (status_.ok()) CheckWhole(table);
    if (!status_.ok()) return status_;
    return std::move(map_);
  }

 private:
  void Wrong(const toml::node& node, const std::string& expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(path_ + ":" + std::to_string(node.source().begin.line) +
                                         ": expected " + expected);
  }
  void Unknown(const toml::key& key, const char* what, std::span<const std::string_view> known) {
    if (!status_.ok()) return;
    std::string text = path_ + ":" + std::to_string(key.source().begin.line) + ": expected " +
                       what + ", found " + Quoted(key.str());
    if (const auto meant = MeantName(key.str(), known)) {
      text += "; did you mean " + std::string(*meant) + "?";
    } else {
      text += "; known:";
      for (const std::string_view name : known) text += " " + std::string(name);
    }
    status_ = absl::InvalidArgumentError(text);
  }

  bool Flag(const toml::node& node) {
    if (!node.is_boolean()) Wrong(node, "true or false");
    return node.value_or(false);
  }

  void Top(const toml::key& key, const toml::node& node) {
    const std::string_view name = key.str();
    if (name == "record") {
      const std::string record = node.value_or(std::string());
      map_.token_records = record == "token";
      if (record != "token" && record != "sequence") Wrong(node, "\"sequence\" or \"token\"");
    } else if (name == "step_from_name") {
      map_.step_from_name = Flag(node);
    } else if (name == "lists_of_one") {
      map_.lists_of_one = Flag(node);
    } else if (name == "drop_first") {
      map_.drop_first = node.is_integer() ? node.value_or(int64_t{-1}) : -1;
      if (map_.drop_first < 0) Wrong(node, "a number of entries of at least 0");
    } else if (name == "columns" || name == "constants") {
      const toml::table* table = node.as_table();
      if (table == nullptr) return Wrong(node, "a table");
      for (const auto& [column, value] : *table) Entry(name == "columns", column, value);
    } else {
      Unknown(key, "a key of a mapping file", kAllTopKeys);
    }
  }

  void Entry(bool is_column, const toml::key& key, const toml::node& node) {
    const std::optional<Column> column = FindRolloutColumn(key.str());
    if (!column) {
      Unknown(key, "a column", RolloutColumnNames());
    } else if (is_column) {
      Sources(*column, node);
    } else {
      Constant(*column, node);
    }
  }

  static std::vector<std::string> Keys(const std::string& dotted) {
    std::vector<std::string> keys;
    std::stringstream stream(dotted);
    for (std::string key; std::getline(stream, key, '.');) keys.push_back(key);
    return keys;
  }

  // Reads a list of sources of one column. Masks are multiplied; for other columns, the first
  // source that a record has is used.
  void Sources(Column column, const toml::node& node) {
    const toml::array* list = node.as_array();
    if (list == nullptr) return Source(column, node);
    if (list->empty()) Wrong(node, "at least one path");
    for (const toml::node& one : *list) Source(column, one);
  }

  void Source(Column column, const toml::node& node) {
    ColumnSource source;
    source.column = column;
    source.more = map_.Find(column) != nullptr;
    std::string path = node.value_or(std::string());
    if (const toml::table* table = node.as_table()) {
      for (const auto& [key, value] : *table) Detail(key, value, &path, &source);
    }
    source.path = Keys(path);
    const bool empty =
        source.path.empty() || std::count(source.path.begin(), source.path.end(), "");
    if (empty) return Wrong(node, "a path of keys, as \"sample.tokens\"");
    const ColumnKind kind = InfoOf(column).kind;
    const bool numeric = kind == ColumnKind::kNumber || kind == ColumnKind::kNumbers;
    if (source.scale != 1 && !numeric) Wrong(node, "a scale for columns of numbers only");
    if (source.align_end && !IsList(kind)) Wrong(node, "an alignment for lists only");
    if (source.of_calls && column != Column::kWeightVersions)
      Wrong(node, "each = \"call\" for weight_versions only");
    for (const ColumnSource& other : map_.columns) {
      const size_t shared = std::min(other.path.size(), source.path.size());
      if (std::equal(other.path.begin(), other.path.begin() + static_cast<std::ptrdiff_t>(shared),
                     source.path.begin()))
        Wrong(node, "a path that no other column uses or passes through, found " + Quoted(path));
    }
    map_.columns.push_back(std::move(source));
  }

  void Detail(const toml::key& key, const toml::node& value, std::string* path,
              ColumnSource* source) {
    if (key.str() == "path") {
      *path = value.value_or(std::string());
    } else if (key.str() == "scale") {
      source->scale = value.is_number() ? value.value_or(0.0) : 0.0;
      if (!std::isfinite(source->scale) || source->scale == 0)
        Wrong(value, "a finite factor other than 0");
    } else if (key.str() == "align") {
      source->align_end = value.value_or(std::string()) == "end";
      if (!source->align_end && value.value_or(std::string()) != "begin")
        Wrong(value, "\"begin\" or \"end\"");
    } else if (key.str() == "each") {
      source->of_calls = value.value_or(std::string()) == "call";
      if (!source->of_calls && value.value_or(std::string()) != "token")
        Wrong(value, "\"token\" or \"call\"");
    } else {
      Unknown(key, "path, scale, align or each", kSourceKeys);
    }
  }

  void Constant(Column column, const toml::node& node) {
    ColumnValue& value = At(map_.constants, column);
    const RolloutColumnInfo& info = InfoOf(column);
    if (IsList(info.kind) && !info.repeats)
      return Wrong(node, "a constant for a column of one value, which " + std::string(info.name) +
                             " is not");
    value.present = true;
    value.repeated = IsList(info.kind);
    const bool text = info.kind == ColumnKind::kText || info.kind == ColumnKind::kName;
    if (text) {
      value.text = node.value_or(std::string());
      if (!node.is_string()) Wrong(node, "a string");
      return;
    }
    const bool flag = info.kind == ColumnKind::kFlags && node.is_boolean();
    const bool whole = info.kind == ColumnKind::kInteger || info.kind == ColumnKind::kIntegers;
    if (!flag && !(whole ? node.is_integer() : node.is_number()))
      return Wrong(node, whole ? "a whole number" : "a number");
    value.number = flag ? (node.value_or(false) ? 1 : 0) : node.value_or(0.0);
    value.integer = node.value_or(int64_t{0});
    if (!std::isfinite(value.number)) Wrong(node, "a finite number");
    if (info.kind == ColumnKind::kFlags) value.flags = {static_cast<uint8_t>(value.number != 0)};
    if (info.kind == ColumnKind::kNumbers) value.numbers = {value.number};
    if (info.kind == ColumnKind::kIntegers) value.integers = {value.integer};
  }

  // Checks that the map has the columns that every record needs.
  void CheckWhole(const toml::table& table) {
    const auto has = [&](Column column) {
      return map_.Find(column) != nullptr || At(map_.constants, column).present;
    };
    if (!has(Column::kRolloutLogprobs) && !has(Column::kTrainLogprobs)) {
      Wrong(table, "a column rollout_logprobs or train_logprobs");
    } else if (!has(Column::kStep) && !map_.step_from_name) {
      Wrong(table, "a column step or a constant step, or step_from_name = true");
    } else if (map_.token_records && !has(Column::kSequenceId)) {
      Wrong(table, "a column sequence_id, since records are tokens");
    } else if (map_.token_records && (has(Column::kRolloutRouting) || has(Column::kTrainRouting) ||
                                      map_.drop_first > 0)) {
      Wrong(table, "neither routing nor drop_first, since records are tokens");
    } else if (map_.drop_first > 0 && has(Column::kPosition)) {
      Wrong(table, "drop_first or a column position, not both");
    }
  }

  std::string path_;
  ColumnMap map_;
  absl::Status status_;
};

// The built-in maps are well formed (tests/audit/column_map_test.cc).
ColumnMap ReadKnownMap(std::string_view name) {
  return *MapReader(std::string(name)).Read(std::string(*KnownMap(name)));
}

}  // namespace

absl::StatusOr<ColumnMap> ReadColumnMap(const std::string& path) {
  constexpr uint64_t kMost = 1 << 20;
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (const std::optional<std::string_view> known = KnownMap(path); !file.ok() && known)
    return MapReader(path).Read(std::string(*known));
  if (!file.ok())
    return absl::InvalidArgumentError(path + ": " + std::string(file.status().message()));
  if (file->size() > kMost)
    return absl::InvalidArgumentError(path + ": expected a file of at most 1 MiB");
  const absl::StatusOr<std::string> text = file->Head(kMost);
  if (!text.ok())
    return absl::InvalidArgumentError(path + ": " + std::string(text.status().message()));
  return MapReader(path).Read(*text);
}

std::vector<const Reader*> KnownRollouts() {
  struct Known {
    const char* map;
    std::vector<std::string> keys;
    size_t enough;
  };
  static const std::vector<Known> kKnown = {
      {"trl",
       {"completion_ids", "completion_mask", "sampling_per_token_logps", "old_per_token_logps"},
       3},
      {"verl", {"responses", "response_mask", "rollout_log_probs", "old_log_probs"}, 3},
      {"openrlhf", {"sequences", "action_mask", "action_log_probs", "rollout_log_probs"}, 3},
      {"slime",
       {"tokens", "response_length", "response_lengths", "loss_mask", "loss_masks",
        "rollout_log_probs", "log_probs"},
       4}};
  static const std::vector<ColumnMap> kMaps = [] {
    std::vector<ColumnMap> maps;
    for (const Known& known : kKnown) maps.push_back(ReadKnownMap(known.map));
    return maps;
  }();
  static const std::vector<RolloutReader> kReaders = [] {
    std::vector<RolloutReader> readers;
    for (size_t i = 0; i < kKnown.size(); ++i)
      readers.emplace_back(kMaps[i], kKnown[i].keys, kKnown[i].enough);
    return readers;
  }();
  std::vector<const Reader*> list;
  for (const RolloutReader& reader : kReaders) list.push_back(&reader);
  return list;
}

RolloutReader MappedRollouts(const ColumnMap& map) {
  std::set<std::string> keys;
  for (const Column column : {Column::kRolloutLogprobs, Column::kTrainLogprobs}) {
    if (const ColumnSource* source = map.Find(column)) keys.insert(source->path[0]);
  }
  const size_t enough = std::min<size_t>(keys.size(), 1);
  return RolloutReader(map, {keys.begin(), keys.end()}, enough);
}

}  // namespace plumbline::audit
