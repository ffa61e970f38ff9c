// Parses log lines that contain a printed dictionary, with its values and its step.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_axes.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {

// Keeps the step of "Step 100 per-step time 0.6s", because a dictionary directly below it has no
// step of its own. Always returns true.
bool LogParser::KeepAbove(const LogRecord& record) {
  above_lines_ = 0;
  const bool stated = record.how == LogRecord::Step::kStated;
  const bool training = stated && HasTraining(record);
  if (training && !record.evaluation) newest_ = record.mark.step;
  if (std::exchange(from_above_, false)) return true;  // the same dictionary may be printed twice
  above_ = stated && !training ? record.mark.step : -1;
  return true;
}

bool LogParser::ParseDictionary(std::string_view text, bool ended, LogRecord* record) {
  record->how = LogRecord::Step::kCounted;
  TakeDictionary(text, ended, record);
  if (TakeTuple(record)) return true;
  // The dictionary may contain its step.
  constexpr int kNested = 1000;  // rank after all other names of a step
  int best = -1;
  size_t steps = 0;
  for (const LogRecord::Value& v : record->values) {
    const int rank = IsEpochName(v.name)    ? -1
                     : IsNestedStep(v.name) ? kNested
                                            : StepNameRank(v.name);
    if (rank < 0 || !IsWhole(v.value)) continue;
    ++steps;
    if (best >= 0 && rank >= best) continue;
    best = rank;
    record->axis = StepAxes::SubjectOf(v.name);
    record->how = LogRecord::Step::kStated;
    record->mark.step = static_cast<int64_t>(v.value);
    record->mark.total = static_cast<int64_t>(v.limit);
  }
  // SlowFast prints {"epoch": "5/100", "iter": "50/200"}.
  for (const LogRecord::Value& v : record->values) {
    if (!IsEpochName(v.name) || !IsWhole(v.value) || v.value < 0) continue;
    record->mark.batches |= v.limit > 0 && record->mark.total > 0;
    record->mark.epoch = static_cast<int64_t>(v.value);
  }
  if (steps > 1 && !record->axis.empty()) TakeAxes(record);
  std::erase_if(record->values, [](const LogRecord::Value& v) {
    return !IsEpochName(v.name) && (StepNameRank(v.name) >= 0 || IsNestedStep(v.name));
  });
  if (record->how == LogRecord::Step::kStated) return !record->values.empty();
  if (TakeRollout(record)) return !record->values.empty();
  if (IsSample()) return false;
  if (above_ >= 0) {
    record->how = LogRecord::Step::kStated;
    record->mark.step = above_;
    from_above_ = true;
  } else if (shown_ >= 0) {
    record->how = LogRecord::Step::kShown;
    record->mark.step = shown_;
  }
  // If there is no step, accepts only names that certainly belong to a training, because printed
  // settings look the same.
  return std::any_of(record->values.begin(), record->values.end(), [](const LogRecord::Value& v) {
    return HasTrainingWord(v.name) && v.name.find("rate") == std::string_view::npos &&
           v.name != "lr";
  });
}

// Takes the steps of 'rollout/step': 5 and the like, which are not values.
void LogParser::TakeAxes(LogRecord* record) {
  std::erase_if(record->values, [&](const LogRecord::Value& v) {
    const std::string_view subject =
        IsWhole(v.value) && v.value >= 0 ? StepAxes::SubjectOf(v.name) : std::string_view();
    if (subject.empty()) return false;
    if (subject != record->axis) record->axes.push_back({subject, static_cast<int64_t>(v.value)});
    return true;
  });
}

// Takes the number before the dictionary of "rollout 34: {'rollout/raw_reward': 0.5}" (slime).
bool LogParser::TakeRollout(LogRecord* record) {
  static constexpr std::string_view kWords[] = {"rollout ", "perf ", "eval "};
  const std::string_view text = record->prefix;
  if (!text.ends_with(": ")) return false;
  const size_t number = text.rfind(' ', text.size() - 3) + 1;
  int64_t rollout = 0;
  if (number == 0 || ReadLogCount(text, number, &rollout) != text.size() - 2) return false;
  const auto names = [before = text.substr(0, number)](std::string_view word) {
    const size_t at = before.size() - std::min(before.size(), word.size());
    return before.ends_with(word) && (at == 0 || before[at - 1] == ' ');
  };
  if (std::none_of(std::begin(kWords), std::end(kWords), names)) return false;
  record->how = LogRecord::Step::kRollout;
  record->mark.step = rollout;
  return true;
}

// Takes the round and the loss before the dictionary of "fit progress: (1, 2.5, {'accuracy': 0.1},
// 3.2)" (Flower).
bool LogParser::TakeTuple(LogRecord* record) {
  std::string_view text = record->prefix;
  const size_t open = text.rfind(": (");
  if (open == std::string_view::npos || !text.ends_with(", ")) return false;
  text.remove_suffix(2);
  int64_t round = 0;
  const size_t end = ReadLogCount(text, open + 3, &round);
  const std::optional<double> loss =
      end > open + 3 && text.substr(end, 2) == ", " ? NumberOf(text.substr(end + 2)) : std::nullopt;
  if (!loss) return false;
  record->how = LogRecord::Step::kStated;
  record->mark.step = round;
  record->values.push_back({kLossName, *loss});
  return true;
}

// True for one example of an evaluation (lm-eval's samples), which has its own number, or mostly
// texts. It is not a step of a training.
bool LogParser::IsSample() const {
  static constexpr std::string_view kNumbers[] = {
      "id",  "doc_id",    "sample_id",   "idx",    "index",  "example_id",
      "doc", "prompt_id", "question_id", "sample", "task_id"};
  if (dictionary_.others() > dictionary_.members().size()) return true;
  return std::any_of(dictionary_.members().begin(), dictionary_.members().end(),
                     [](const auto& member) {
                       return std::find(std::begin(kNumbers), std::end(kNumbers), member.name) !=
                              std::end(kNumbers);
                     });
}

// Handles "losses: {'ce': 2.5, 'aux': 0.1}". If no member from `first` on has a name of a training,
// groups them under the name before the brace.
void LogParser::GroupByName(std::string_view before, size_t first, LogRecord* record) {
  static constexpr Bytes kTail(" \t:=");
  const auto begin = record->values.begin() + static_cast<std::ptrdiff_t>(first);
  const auto training = [](const LogRecord::Value& v) { return HasTrainingWord(v.name); };
  if (std::any_of(begin, record->values.end(), training)) return;
  Trim(&before, kSpaces, kTail);
  before.remove_prefix(std::min(before.size(), before.find_last_of(" \t,|") + 1));
  if (before.empty() || !IsPairLetter(before[0]) || !HasTrainingWord(before)) return;
  for (auto v = begin; v != record->values.end(); ++v) v->group = before;
}

size_t LogParser::TakeDictionary(std::string_view text, bool ended, LogRecord* record) {
  dictionary_.Read(text);
  for (const LogDictionary::Member& member : dictionary_.members()) {
    if (!ended && member.at_end && std::isfinite(member.value)) {
      record->cut = true;
    } else {
      record->values.push_back({member.name, member.value, {}, false, member.total});
    }
  }
  record->absent.insert(record->absent.end(), dictionary_.absent().begin(),
                        dictionary_.absent().end());
  record->lists += dictionary_.lists().size();
  if (!dictionary_.lists().empty()) record->first_list = dictionary_.lists()[0];
  return dictionary_.end();
}

}  // namespace plumbline::audit
