#include "text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace moe {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> Files(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Text::Text(const std::string& folder, size_t shortest) {
  for (const auto& path : Files(folder)) {
    const std::string text = ReadFile(path);
    for (size_t from = 0; from < text.size();) {
      const size_t to = std::min(text.find("\n#", from + 1), text.size());
      if (to - from >= shortest) documents_.push_back(text.substr(from, to - from));
      from = to;
    }
  }
  if (documents_.empty()) {
    throw std::runtime_error("no *.txt file with a section of " + std::to_string(shortest) +
                             " bytes in " + folder);
  }
}

Batch Text::Cut(int windows, int length, uint64_t seed, int64_t step) const {
  std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(step));
  Batch batch;
  batch.rows = windows * length;
  for (int b = 0; b < windows; ++b) {
    const std::string& document = documents_[random() % documents_.size()];
    const size_t spare = document.size() - static_cast<size_t>(length) - 1;
    const size_t from = random() % (spare + 1);
    for (int s = 0; s < length; ++s) {
      const size_t at = from + static_cast<size_t>(s);
      batch.tokens.push_back(static_cast<uint8_t>(document[at]));
      batch.targets.push_back(static_cast<uint8_t>(document[at + 1]));
      batch.sequence_id.push_back(b);
      batch.position.push_back(s);
      batch.pool_id.push_back(0);
    }
  }
  return batch;
}

}  // namespace moe
