// Parses lines of a block: lines below a line that has the step, lines of a history of rounds, and
// lines of an evaluation.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_counter.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {
namespace {

bool HasSign(std::string_view text) {
  return text.find('=') != std::string_view::npos || text.find(':') != std::string_view::npos;
}

// Returns the last word of a data set in `text`, as it begins in kPhases; empty if there is none.
std::string_view LastPhase(std::string_view text) {
  static constexpr std::string_view kPhases[] = {
      "train", "training", "val", "valid", "eval", "dev", "test", "validation", "evaluation"};
  std::string_view last;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!IsPairLetter(text[at]) || (at > 0 && (IsPairLetter(text[at - 1]) || text[at - 1] == '_')))
      continue;
    const auto* phase = std::find_if(std::begin(kPhases), std::end(kPhases),
                                     [&](std::string_view p) { return HasWordAt(text, at, p); });
    if (phase != std::end(kPhases)) last = *phase;
  }
  return last;
}

// Returns true if `word` is a word of the text, in any case.
bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((at == 0 || !IsPairLetter(text[at - 1])) && HasWordAt(text, at, word)) return true;
  }
  return false;
}

// Returns true for the description of a bar over a test set: "Testing", "test", "dev".
bool DescribesTest(std::string_view text) {
  static constexpr std::string_view kWords[] = {"test",       "testing", "dev",       "inference",
                                                "predicting", "predict", "prediction"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return HasWord(text, word); }) &&
         !HasWord(text, "train") && !HasWord(text, "training");
}

bool AnyNonFinite(const std::vector<LogRecord::Value>& values) {
  return std::any_of(values.begin(), values.end(),
                     [](const LogRecord::Value& v) { return !std::isfinite(v.value); });
}

}  // namespace

// Handles "train: loss=2.5 acc=0.5, val: loss=2.6 acc=0.4". If the first name occurs again, the
// name of a data set applies to the values after it.
void LogParser::MarkPhases(LogRecord* record) {
  std::vector<LogRecord::Value>& values = record->values;
  if (values.size() < 2 || record->mark.kind == LogMark::Kind::kDictionary) return;
  const auto again = [&](const LogRecord::Value& v) {
    return v.name == values[0].name && v.group == values[0].group;
  };
  if (std::none_of(values.begin() + 1, values.end(), again)) return;
  const char* const end = record->line.data() + record->line.size();
  const char* from = record->line.data();
  std::string_view phase;
  for (LogRecord::Value& v : values) {
    if (v.name.data() < from || v.name.data() >= end) return;
    const std::string_view before(from, static_cast<size_t>(v.name.data() - from));
    if (const std::string_view next = LastPhase(before); !next.empty()) phase = next;
    from = v.name.data() + v.name.size();
    if (phase == "test") {
      v.group = phase;
    } else {
      v.evaluation |= !phase.empty() && !phase.starts_with("train");
    }
  }
}

void LogParser::OpenBlock(const LogRecord& record) {
  continued_ = true;
  bare_ = of_episode_ = false;
  continued_mark_ = record.mark;
  continued_how_ = record.how;
  continued_evaluation_ = record.evaluation;
  continued_prefix_ = record.prefix;
}

// Takes pairs that belong to the step of the line above.
bool LogParser::TakeContinued(std::string_view pairs, bool ended, LogRecord* record) {
  record->mark = continued_mark_;
  record->mark.alone = false;
  record->how = continued_how_;
  record->evaluation = continued_evaluation_;
  record->prefix = continued_prefix_;
  TakePairs(pairs, ended, record);
  if (!record->values.empty()) words_ = kMostWords;
  return !record->values.empty();
}

// Takes "    train/CrossEntropyLoss=10.9" or "  | > loss: 2.3" below a line that has the step.
bool LogParser::Continue(std::string_view line, bool ended, LogRecord* record) {
  if (!continued_) return false;
  if (listed_) return Listed(line, ended, record);
  if (wrapped_) return Wrapped(line, ended, record);
  if (of_episode_ && EndsEpisode(line)) return continued_ = bare_ = of_episode_ = false;
  if (bare_ && UnderStep(line, ended, record)) return !record->values.empty();
  // The line has only words between the heading and the values: "Preparing batch...".
  if (bare_ && line[0] != ' ' && ++words_ <= kMostWords) return false;
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  const char first = line[line.find_first_not_of(" \t")];
  // The line begins a new epoch. Coqui's "> EPOCH: 1/1000" always does.
  const size_t letter = std::min(line.find_first_not_of(" \t*->"), line.size());
  const bool epoch = letter < line.size() && HasWordAt(line, letter, "epoch") &&
                     (first == '>' || continued_mark_.kind == LogMark::Kind::kEpoch);
  if (!indented || epoch || IsPairDigit(first) || !HasSign(line)) {
    continued_ = false;
    return false;
  }
  if (!TakeContinued(line, ended, record)) return false;
  // In "  valid: loss=2.5", the text before the values is the name of their data set.
  const char* name = record->values[0].name.data();
  if (name > line.data() && name < line.data() + line.size())
    record->evaluation |= IsEvaluationHead(line.substr(0, static_cast<size_t>(name - line.data())));
  return true;
}

// Returns true for a rule, a box or another count below "day: 2892, episode: 10" (FinRL).
bool LogParser::EndsEpisode(std::string_view line) {
  static constexpr Bytes kRules("-=+|#*");
  const size_t first = line.find_first_not_of(" \t");
  return kRules[line[first]] || FindCounter(line, Signs(line)).has_value();
}

// Takes "Loss: 2.5" or "| loss | 2.5 |" below "Step: 10". Returns true if the line belongs to the
// block. A line of the block without a value is a rule or a header of the box.
bool LogParser::UnderStep(std::string_view line, bool ended, LogRecord* record) {
  constexpr size_t kLongest = 120;
  static constexpr Bytes kEdges(" \t|");
  if (line.size() > kLongest) return false;
  std::string_view text = line.substr(heading_.EndIn(line));
  Trim(&text, kSpaces, kSpaces);
  const bool boxed = text.starts_with('|');
  Trim(&text, kEdges, kEdges);
  if (text.empty() || !HasLetter(text)) return true;
  if (!IsPairLetter(text[0])) return false;
  if (!TakeContinued(text, ended, record)) {
    record->Clear();
    record->line = line;
    return boxed;
  }
  const LogRecord::Value& first = record->values[0];
  const char* end = first.name.data() + first.name.size();
  const bool whole = first.name.data() == text.data() && end < text.data() + text.size() &&
                     (boxed || HasSign(text.substr(first.name.size(), 3)));
  if (!whole) record->Clear();
  return whole;
}

// Takes VITS's values, whose step is in the list above.
bool LogParser::Listed(std::string_view line, bool ended, LogRecord* record) {
  continued_ = listed_ = false;
  if (!HasSign(line) || !TakeContinued(line.substr(heading_.EndIn(line)), ended, record) ||
      !HasTraining(*record)) {
    record->Clear();
    return false;
  }
  return true;
}

// Takes a line that a terminal has wrapped. Its name may be in the line above.
bool LogParser::Wrapped(std::string_view line, bool ended, LogRecord* record) {
  constexpr size_t kLeast = 8;  // number of spaces below the columns of time and level
  if (line.find_first_not_of(' ') < kLeast) {
    continued_ = wrapped_ = false;
    return false;
  }
  joined_ = wrapped_tail_;
  joined_.append(" ").append(line.substr(line.find_first_not_of(' ')));
  return TakeContinued(joined_, ended, record);
}

// Takes the heading of a list of rounds, "History (loss, distributed):" (Flower). Other histories
// ("metrics, centralized") have no rounds.
bool LogParser::OpensHistory(std::string_view line) {
  constexpr std::string_view kHeading = "History (", kEnd = "):", kLoss = "loss, ";
  if (!line.ends_with(kEnd)) return false;
  const size_t at = line.rfind(kHeading);
  if (at == std::string_view::npos) return false;
  line.remove_suffix(kEnd.size());
  line.remove_prefix(at + kHeading.size());
  history_ = line.starts_with(kLoss) ? line.substr(kLoss.size()) : std::string_view();
  return true;
}

// Takes "round 3: 2.5" of a history. If the log has rows with steps, the history repeats them.
bool LogParser::TakeOfHistory(std::string_view rest, bool ended, LogRecord* record) {
  static constexpr Bytes kFront(" \t:");
  Trim(&rest, kFront, kSpaces);
  const std::optional<double> value = ended ? NumberOf(rest) : std::nullopt;
  if (!value) {
    history_.clear();
    return false;
  }
  record->values.push_back({kLossName, *value, history_});
  record->how = LogRecord::Step::kEpoch;
  record->summary = newest_ >= 0;
  return true;
}

// Takes the headings of an evaluation, " > EVALUATION" and "--> EVAL PERFORMANCE" (Coqui): below
// the first one are its batches, "--> STEP: 0", and below the second one are its means.
bool LogParser::OpensEvaluation(std::string_view line, LogRecord* record) {
  static constexpr Bytes kBullets(" \t*>-");
  Trim(&line, kBullets, kBullets);
  evaluating_ |= line == "EVALUATION";
  if (line != "EVAL PERFORMANCE") return line == "EVALUATION";
  evaluating_ = false;
  record->how = LogRecord::Step::kEpoch;
  record->mark.step = std::max<int64_t>(0, epoch_);
  record->evaluation = true;
  OpenBlock(*record);
  return true;
}

// Takes a bar of an evaluation, "Evaluating: 100%|###| 50/50 [..., loss=2.5]", below one of the
// training: its end belongs to the training's step before it. Of the values within it, the first
// one that is not finite is recorded. Returns false for another bar, and if no training precedes
// it.
bool LogParser::TakeEvaluationBar(std::string_view description, LogRecord* record) {
  const bool test = !record->evaluation && DescribesTest(description);
  const bool trained = bar_trained_ || newest_ >= 0;
  if (!(record->evaluation || test) || record->values.empty()) return false;
  if (!trained && shown_ < 0 && epoch_ < 0) return false;
  if (test) {
    for (LogRecord::Value& v : record->values) v.group = v.group.empty() ? "test" : v.group;
  }
  const bool ends = record->mark.total <= 0 || record->mark.step >= record->mark.total;
  record->how = trained || shown_ < 0 ? LogRecord::Step::kEpoch : LogRecord::Step::kRollout;
  record->mark.step = std::max<int64_t>(0, trained || shown_ < 0 ? epoch_ : shown_);
  record->evaluation_bar = true;
  record->evaluated = ends;
  const bool lost = !ends && !lost_in_bar_ && AnyNonFinite(record->values);
  lost_in_bar_ = !ends && (lost_in_bar_ || lost);
  if (ends || lost) return true;
  record->evaluation_batch = true;
  record->values.clear();
  return true;
}

// Takes a batch of an evaluation, which belongs to the newest step. A later step ends the
// evaluation.
void LogParser::TakeStepOfEvaluation(LogRecord* record) {
  evaluating_ = record->mark.step < newest_;
  if (!evaluating_) return;
  record->how = LogRecord::Step::kEpoch;
  record->mark.step = std::max<int64_t>(0, epoch_);
  record->evaluation = true;
}

}  // namespace plumbline::audit
