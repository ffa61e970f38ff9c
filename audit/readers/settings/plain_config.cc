#include "audit/readers/settings/plain_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostConfigBytes = 1 << 20, kMostConfigEntries = 4096, kMostConfigValue = 1024;

std::string BytesOf(const std::string& path) {
  const absl::StatusOr<InputFile> opened = InputFile::Open(path);
  if (!opened.ok() || opened->size() > kMostConfigBytes) return "";
  absl::StatusOr<std::string> bytes = opened->Head(kMostConfigBytes);
  return bytes.ok() ? *std::move(bytes) : "";
}

std::string BytesNextTo(const std::string& file, std::string_view name) {
  return BytesOf(file.substr(0, file.rfind('/') + 1) + std::string(name));
}

// Adds the settings in an object. Joins names of nested objects by '/'. Skips names that begin with
// '_', which the logger adds itself (the user, the time). Bounds the depth, because a file may nest
// without limit.
void AddObject(const nlohmann::json& object, const std::string& prefix, int depth,
               std::map<std::string, std::string>* settings) {
  constexpr int kMostDepth = 16;
  for (const auto& [key, value] : object.items()) {
    if (key.starts_with('_')) continue;
    if (value.is_object()) {
      if (depth < kMostDepth) AddObject(value, prefix + key + "/", depth + 1, settings);
    } else if (value.is_string()) {
      AddConfig(prefix + key, value.get_ref<const std::string&>(), settings);
    } else if (value.is_number() || value.is_boolean()) {
      AddConfig(prefix + key, value.dump(), settings);
    }
  }
}

}  // namespace

void AddConfig(std::string_view name, std::string_view value,
               std::map<std::string, std::string>* settings) {
  if (value.empty() || value.size() > kMostConfigValue) return;
  if (settings->size() < kMostConfigEntries)
    settings->emplace("config: " + PlainName(name), PlainName(value));
}

void AddJsonConfig(std::string_view json, const std::string& prefix,
                   std::map<std::string, std::string>* settings) {
  const auto whole = nlohmann::json::parse(json, nullptr, false);
  if (whole.is_object()) AddObject(whole, prefix, 0, settings);
}

void AddFolderConfig(const std::string& folder, std::map<std::string, std::string>* settings) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (settings->size() >= kMostConfigEntries) return;
    std::error_code none;
    if (!at->is_regular_file(none)) continue;
    std::string value = BytesOf(at->path().string());
    while (value.ends_with('\n') || value.ends_with('\r')) value.pop_back();
    AddConfig(at->path().lexically_relative(folder).string(), value, settings);
  }
}

void TakeJsonConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings) {
  AddJsonConfig(BytesNextTo(file, name), "", settings);
}

void TakeYamlConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings) {
  constexpr std::string_view kValue = "value: ";
  const std::string bytes = BytesNextTo(file, name);
  std::string_view rest = bytes, key;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && line.front() != ' ' && line.front() != '#') {
      key = line.ends_with(':') ? line.substr(0, line.size() - 1) : std::string_view();
      continue;
    }
    const size_t first = line.find_first_not_of(' ');
    if (key.empty() || first == std::string_view::npos) continue;
    if (line.substr(first).starts_with(kValue))
      AddConfig(key, line.substr(first + kValue.size()), settings);
  }
}

}  // namespace plumbline::audit
