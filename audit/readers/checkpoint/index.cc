#include "audit/readers/checkpoint/index.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

namespace plumbline::audit {
namespace {

constexpr uint64_t kMostIndexBytes = uint64_t{16} << 20;

// Returns true for a name without a folder: an index refers to its own folder only.
bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Parses an index. `twice`: a key that occurs twice in an object.
nlohmann::json ParseIndex(const std::string& text, std::string* twice) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.empty() &&
        !keys.back().insert(parsed.get<std::string>()).second && twice->empty())
      *twice = parsed.get<std::string>();
    return depth < 8;
  };
  return nlohmann::json::parse(text, watch, false);
}

}  // namespace

std::optional<Problem> ReadShardIndex(const InputFile& file, ShardIndex* index) {
  if (file.size() > kMostIndexBytes) {
    return Problem{0, "expected an index of at most " + std::to_string(kMostIndexBytes) +
                          " bytes, found " + std::to_string(file.size())};
  }
  const absl::StatusOr<std::string> text = file.Head(kMostIndexBytes);
  if (!text.ok()) return Problem{0, std::string(text.status().message())};
  std::string twice;
  const nlohmann::json json = ParseIndex(*text, &twice);
  if (json.is_discarded() || !json.is_object())
    return Problem{0, "expected a JSON object, found other or incomplete content"};
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    return Problem{0, "expected a weight_map of tensors and files, found none"};
  const size_t at = text->find("\"weight_map\"");
  if (!twice.empty())
    return Problem{at, "expected each tensor once in the index, found " + Quoted(twice) + " again"};
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string() || !IsFileName(shard.get<std::string>()))
      return Problem{
          at, "expected the name of a file for tensor " + Quoted(name) + ", found something else"};
    index->files[name] = shard.get<std::string>();
    index->shards.insert(shard.get<std::string>());
  }
  const auto metadata = json.find("metadata");
  if (metadata != json.end() && metadata->is_object()) {
    const auto total = metadata->find("total_size");
    if (total != metadata->end() && total->is_number_unsigned())
      index->total_size = total->get<uint64_t>();
  }
  return std::nullopt;
}

std::vector<Problem> CheckShards(const ShardIndex& index, const std::vector<ShardTensors>& shards,
                                 const std::set<std::string>& missing, std::string* note) {
  std::vector<Problem> problems;
  std::map<std::string, std::string> found;  // the shard of each tensor
  uint64_t total = 0;
  for (const std::string& shard : missing)
    problems.push_back({0, "expected the shard " + Quoted(shard) +
                               " in the folder of its index, found no readable one"});
  for (const ShardTensors& shard : shards) {
    for (const auto& [name, bytes] : shard.tensors) {
      total += bytes;
      const auto [first, is_new] = found.emplace(name, shard.shard);
      if (!is_new) {
        problems.push_back({0, "expected tensor " + Quoted(name) + " in one shard, found it in " +
                                   Quoted(first->second) + " and " + Quoted(shard.shard)});
        continue;
      }
      const auto named = index.files.find(name);
      if (named == index.files.end() || named->second != shard.shard) {
        problems.push_back({0, "expected tensor " + Quoted(name) + " of " + Quoted(shard.shard) +
                                   " in the index, found " +
                                   (named == index.files.end() ? std::string("no such name")
                                                               : Quoted(named->second))});
      }
    }
  }
  for (const auto& [name, shard] : index.files) {
    if (found.contains(name) || missing.contains(shard)) continue;
    problems.push_back(
        {0, "expected tensor " + Quoted(name) + " in " + Quoted(shard) + ", found no such tensor"});
  }
  if (problems.empty() && index.total_size && *index.total_size != total) {
    *note = "the index states " + std::to_string(*index.total_size) +
            " bytes of tensors, its shards contain " + std::to_string(total) +
            "; each tensor of the index exists";
  }
  return problems;
}

bool TiesEmbedding(const std::string& path) {
  const std::filesystem::path config = std::filesystem::path(path).parent_path() / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(config, error)) return false;
  const absl::StatusOr<InputFile> file = InputFile::Open(config.string());
  if (!file.ok() || file->size() > kMostIndexBytes) return false;
  const absl::StatusOr<std::string> text = file->Head(kMostIndexBytes);
  if (!text.ok()) return false;
  std::string twice;
  const nlohmann::json json = ParseIndex(*text, &twice);
  if (!json.is_object()) return false;
  const auto tied = json.find("tie_word_embeddings");
  return tied != json.end() && tied->is_boolean() && tied->get<bool>();
}

}  // namespace plumbline::audit
