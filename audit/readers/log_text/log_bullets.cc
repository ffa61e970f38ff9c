#include "audit/readers/log_text/log_bullets.h"

#include <algorithm>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Returns the text between two rules: " Step 3/100 " of "=== Step 3/100 ===". If the line has no
// rules, returns "".
std::string_view BetweenRules(std::string_view line) {
  constexpr size_t kShortest = 3;
  constexpr char kRule = '=';
  line = Trimmed(line);
  const size_t first = line.find_first_not_of(kRule), last = line.find_last_not_of(kRule);
  if (first == line.npos || first < kShortest || line.size() - last <= kShortest) return {};
  return Trimmed(line.substr(first, last - first + 1));
}

bool IsStep(std::string_view text) {
  if (!text.starts_with("Step ") && !text.starts_with("step ")) return false;
  text.remove_prefix(5);
  return !text.empty() && IsPairDigit(text.front()) && IsPairDigit(text.back()) &&
         text.find_first_not_of("0123456789/") == text.npos &&
         std::count(text.begin(), text.end(), '/') <= 1;
}

// Returns the text after a bullet; "" if the line has no bullet or no value.
std::string_view AfterBullet(std::string_view line) {
  const std::string_view text = Trimmed(line);
  for (const std::string_view bullet : {"\xE2\x80\xA2 ", "- ", "* "}) {
    if (!text.starts_with(bullet)) continue;
    const size_t colon = text.rfind(": ");
    if (colon == text.npos || colon + 2 >= text.size()) return {};
    return Trimmed(text.substr(bullet.size()));
  }
  return {};
}

}  // namespace

std::string_view LogBullets::Take(std::string_view line, std::string* own) {
  if (const std::string_view title = BetweenRules(line); !title.empty()) {
    step_ = IsStep(title) ? std::string(title) : "";
    validation_ = false;
    return line;
  }
  if (step_.empty()) return line;
  const std::string_view value = AfterBullet(line);
  if (value.empty()) {
    if (const std::string_view title = Trimmed(line); title.ends_with(":"))
      validation_ = title.find("alidation") != title.npos;
    return line;
  }
  const size_t colon = value.find(": ");
  *own = step_ + " | " + (validation_ ? "val/" : "");
  const size_t name = own->size();
  own->append(value.substr(0, colon));
  std::replace(own->begin() + static_cast<std::ptrdiff_t>(name), own->end(), ' ', '_');
  own->append(value.substr(colon));
  return *own;
}

}  // namespace plumbline::audit
