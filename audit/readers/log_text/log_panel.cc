#include "audit/readers/log_text/log_panel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "audit/readers/log_text/drawn_rules.h"
#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostPanelRows = 64, kMostPanelRow = 1 << 14;
constexpr size_t kLongestPanelGroup = 32, kLongestPanelName = 64;

// Returns the size of the group that begins the row, or 0.
size_t PanelGroupOf(std::string_view row) {
  const size_t end = row.find("  ");
  if (end == std::string_view::npos || end > kLongestPanelGroup || !IsPairLetter(row[0])) return 0;
  const bool word = row.substr(0, end).find_first_of(" :|") == std::string_view::npos;
  return word && row.find(':', end) != std::string_view::npos ? end : 0;
}

}  // namespace

bool LogPanel::Begin(std::string_view line) {
  if (!IsTitledRule(line)) return false;
  rows_.clear();
  return open_ = true;
}

bool LogPanel::TakeRow(std::string_view line) {
  if (!std::exchange(open_, false)) return false;
  Trim(&line, kSpaces, kSpaces);
  if (line.size() < 3 || !line.ends_with('|')) return false;
  line = line.substr(1, line.size() - 2);
  const bool continues = line.starts_with("    ");
  Trim(&line, kSpaces, kSpaces);
  if (line.empty()) return open_ = true;
  const size_t group = continues ? 0 : PanelGroupOf(line);
  if (!continues) {
    if (group == 0 || rows_.size() == kMostPanelRows) return false;
    rows_.push_back({std::string(line.substr(0, group)), ""});
  }
  if (rows_.empty() || rows_.back().pairs.size() + line.size() > kMostPanelRow) return false;
  rows_.back().pairs.append(" ").append(line.substr(group));
  return open_ = true;
}

void LogPanel::End(size_t most, std::vector<NamedNumber>* box) {
  if (!std::exchange(open_, false)) return;
  for (const Row& row : rows_) {
    for (std::string_view rest = row.pairs; !rest.empty();) {
      std::string_view pair = rest.substr(0, rest.find('|'));
      rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
      Trim(&pair, kSpaces, kSpaces);
      const size_t colon = pair.find(':');
      if (colon == 0 || colon > kLongestPanelName || box->size() >= most) continue;
      std::string_view value = pair.substr(colon + 1);
      Trim(&value, kSpaces, kSpaces);
      if (const std::optional<double> number = NumberOf(value))
        box->push_back({row.group + "/" + std::string(pair.substr(0, colon)), *number});
    }
  }
  rows_.clear();
}

}  // namespace plumbline::audit
