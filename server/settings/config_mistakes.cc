#include "server/settings/config_mistakes.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/near_word.h"

namespace plumbline::server {

std::string KeyName(std::string_view key) {
  std::string name;
  bool inside = false;
  for (const char c : key) {
    if (c == '[') inside = true;
    if (!inside) name += c;
    if (c == ']') inside = false;
  }
  return name;
}

std::string NoneOf(const std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return "";
  return absl::StrCat("expected ", absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ",
                      words.back(), ", found \"", word, "\"", DidYouMean(word, words));
}

void ConfigMistakes::Stands(const std::string& key, const std::string& file, uint32_t line) {
  places_[key] = {file, line};
}

// Returns the place of the key, or of the table that lacks it.
const ConfigMistakes::Place* ConfigMistakes::PlaceOf(std::string key) const {
  for (;;) {
    if (const auto place = places_.find(key); place != places_.end()) return &place->second;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return nullptr;
    key.resize(dot);
  }
}

void ConfigMistakes::Add(const std::string& key, const std::string& text) {
  constexpr uint32_t kNoLine = std::numeric_limits<uint32_t>::max();
  if (const auto option = options_.find(key); option != options_.end()) {
    mistakes_.push_back({key, kNoLine, absl::StrCat(option->second, ": ", text)});
    return;
  }
  const Place* place = PlaceOf(key);
  const std::string named = absl::StrCat(KeyName(key), ": ", text);
  if (place == nullptr) {
    mistakes_.push_back({key, kNoLine, named});
  } else {
    mistakes_.push_back(
        {key, place->line, absl::StrCat(place->file, ":", place->line, ": ", named)});
  }
}

bool ConfigMistakes::Has(std::string_view key) const {
  return std::any_of(mistakes_.begin(), mistakes_.end(), [key](const Mistake& mistake) {
    return std::string_view(mistake.key).substr(0, key.size()) == key &&
           (mistake.key.size() == key.size() || mistake.key[key.size()] == '.' ||
            mistake.key[key.size()] == '[');
  });
}

absl::Status ConfigMistakes::ToStatus() const {
  if (mistakes_.empty()) return absl::OkStatus();
  std::vector<Mistake> sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Mistake& a, const Mistake& b) { return a.line < b.line; });
  return absl::InvalidArgumentError(
      absl::StrJoin(sorted, "\n", [](std::string* out, const Mistake& m) { *out += m.text; }));
}

}  // namespace plumbline::server
