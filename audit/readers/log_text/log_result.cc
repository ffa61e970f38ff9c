#include "audit/readers/log_text/log_result.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {

LogResult::Kind LogResult::Heading(std::string_view line) {
  constexpr std::string_view kBegins = "Result for ", kStars = "***** ";
  if (line.starts_with(kBegins) && line.ends_with(':')) {
    trial_ = line.substr(kBegins.size(), line.size() - kBegins.size() - 1);
    return Kind::kTune;
  }
  if (line.starts_with(kStars) && line.ends_with(" metrics *****")) return Kind::kMetrics;
  return line.ends_with("wandb: Run summary:") ? Kind::kSummary : Kind::kNone;
}

bool LogResult::Take(std::string_view line, bool* whole) {
  *whole = again_ = false;
  static constexpr Bytes kHeads("RW*w");
  const Kind heading = !line.empty() && kHeads[line[0]] ? Heading(line) : Kind::kNone;
  if (kind_ != Kind::kNone && (heading != Kind::kNone || !TakeLine(line))) {
    *whole = again_ = Close();
    if (*whole) return true;
  }
  if (heading != Kind::kNone) {
    Open(heading == Kind::kTune ? trial_ : std::string_view());
    kind_ = heading;
    return true;
  }
  if (kind_ == Kind::kNone) return false;
  // Keys are in alphabetical order, so this is the last key of the trial itself.
  if (kind_ == Kind::kTune && line.find("trial_id:") == line.find_first_not_of(' '))
    *whole = Close();
  return true;
}

// Returns false if the line is not part of the block.
bool LogResult::TakeLine(std::string_view line) {
  constexpr std::string_view kWandb = "wandb: ";
  if (kind_ == Kind::kSummary) {
    if (!line.starts_with(kWandb)) return false;
    line.remove_prefix(kWandb.size());
    Trim(&line, kSpaces, kSpaces);
    const size_t space = line.rfind(' ');
    if (space == std::string_view::npos) return false;
    TakeValue(line.substr(0, space), line.substr(space + 1));
    return true;
  }
  const size_t indent = line.find_first_not_of(' ');
  if (indent == 0 || indent == std::string_view::npos) return false;
  if (kind_ == Kind::kTune) {
    TakeMember(indent, line.substr(indent));
    return true;
  }
  const size_t sign = line.find(" = ");
  if (sign == std::string_view::npos) return false;
  TakeValue(line.substr(indent, sign - indent), line.substr(sign + 3));
  return true;
}

// Takes a name and its value. Ignores texts.
void LogResult::TakeValue(std::string_view name, std::string_view value) {
  constexpr double kMostSteps = 1e15;
  Trim(&name, kSpaces, kSpaces);
  Trim(&value, kSpaces, kSpaces);
  const std::optional<double> number = NumberOf(value);
  if (!number || name.empty() || name.size() > kMostNameBytes) return;
  const int rank = StepNameRank(name);
  if (rank < 0 || !(*number >= 0) || *number > kMostSteps) {
    if (open_row_.values.size() < kMostValues)
      open_row_.values.push_back({std::string(name), *number});
  } else if (step_rank_ < 0 || rank < step_rank_) {
    step_rank_ = rank;
    epoch_ = IsEpochName(name);
    iteration_ = static_cast<int64_t>(std::ceil(*number));
  }
}

void LogResult::Open(std::string_view trial) {
  above_.clear();
  open_row_ = {};
  iteration_ = timesteps_ = -1;
  step_rank_ = -1;
  epoch_ = false;
  prefix_.clear();
  if (trial.empty()) return;
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
  } else if (open_row_.values.size() < kMostValues) {
    open_row_.values.push_back({prefix_ + path, *number});
  }
}

// Returns true if the block had values.
bool LogResult::Close() {
  closed_ = std::exchange(kind_, Kind::kNone);
  row_ = std::exchange(open_row_, {});
  row_.step = iteration_ >= 0 ? iteration_ : timesteps_;
  // If the block has no step, its values belong to the newest step.
  row_.epoch = epoch_ || (closed_ != Kind::kTune && row_.step < 0);
  if (row_.epoch) row_.step = std::max<int64_t>(0, row_.step);
  return row_.step >= 0 && !row_.values.empty();
}

}  // namespace plumbline::audit
