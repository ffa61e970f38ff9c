#include "audit/readers/log_text/log_result.h"

#include <algorithm>
#include <optional>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {

bool LogResult::Take(std::string_view line, bool* whole) {
  constexpr std::string_view kBegins = "Result for ";
  *whole = false;
  if (line.starts_with(kBegins) && line.ends_with(':')) {
    Open(line.substr(kBegins.size(), line.size() - kBegins.size() - 1));
    return true;
  }
  if (!open_) return false;
  const size_t indent = line.find_first_not_of(' ');
  if (indent == 0 || indent == std::string_view::npos) {
    *whole = Close();
    return *whole;
  }
  const std::string_view text = line.substr(indent);
  TakeMember(indent, text);
  // Its keys are in the order of the alphabet: this is the last of the trial itself.
  if (text.starts_with("trial_id:")) *whole = Close();
  return true;
}

void LogResult::Open(std::string_view trial) {
  open_ = true;
  above_.clear();
  row_ = {};
  iteration_ = timesteps_ = -1;
  auto known = std::find(trials_.begin(), trials_.end(), trial);
  if (known == trials_.end() && trials_.size() < kMostTrials)
    known = trials_.insert(trials_.end(), std::string(trial));
  const auto number = known - trials_.begin();
  prefix_ = number == 0 ? "" : "trial" + std::to_string(number) + "/";
}

void LogResult::TakeMember(size_t indent, std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.starts_with('-')) return;
  while (!above_.empty() && above_.back().first >= indent) above_.pop_back();
  std::string path = above_.empty() ? "" : above_.back().second + "/";
  path.append(text.substr(0, colon));
  if (path.size() > kMostNameBytes) return;
  std::string_view value = text.substr(colon + 1);
  Trim(&value, kSpaces, kSpaces);
  if (value.empty()) {
    above_.emplace_back(indent, std::move(path));
    return;
  }
  static constexpr Bytes kYamlDot(".");
  if (value == ".nan" || value == ".inf") Trim(&value, kYamlDot, kYamlDot);
  const std::optional<double> number = NumberOf(value);
  if (!number) return;
  if (path == "training_iteration" && IsWhole(*number)) {
    iteration_ = static_cast<int64_t>(*number);
  } else if (path == "timesteps_total" && IsWhole(*number)) {
    timesteps_ = static_cast<int64_t>(*number);
  } else if (row_.values.size() < kMostValues) {
    row_.values.push_back({prefix_ + path, *number});
  }
}

bool LogResult::Close() {
  open_ = false;
  row_.step = iteration_ >= 0 ? iteration_ : timesteps_;
  return row_.step >= 0 && !row_.values.empty();
}

}  // namespace plumbline::audit
