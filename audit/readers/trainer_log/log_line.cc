#include "audit/readers/trainer_log/log_line.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_literal.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_counter.h"
#include "audit/readers/trainer_log/log_counts.h"
#include "audit/readers/trainer_log/log_lead.h"
#include "audit/readers/trainer_log/log_prefix.h"
#include "audit/readers/trainer_log/log_signs.h"

namespace plumbline::audit {
namespace {

// True for "[{'loss': ...", "{'loss': [2.5, ...", "'loss': array([...".
bool MayHoldLiteral(std::string_view line) {
  const size_t brace = line.find('{');
  if (brace == std::string_view::npos) return false;
  if (brace > 0 && (line[brace - 1] == '[' || line[brace - 1] == '(')) return true;
  const size_t colon = line.find(": ", brace);
  if (colon == std::string_view::npos || colon + 2 >= line.size()) return false;
  static constexpr Bytes kLists("[(an");
  return kLists[line[colon + 2]];
}

}  // namespace

bool HasLetter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), IsPairLetter);
}

bool HasTraining(const LogRecord& record) {
  // Lines of a log mostly have the same names, so the place in the previous one is tried first.
  thread_local size_t place = 0;
  if (place < record.values.size() && HasTrainingWord(record.values[place].name)) return true;
  const auto found =
      std::find_if(record.values.begin(), record.values.end(), [](const LogRecord::Value& v) {
        return HasTrainingWord(v.name) || (!v.group.empty() && HasTrainingWord(v.group));
      });
  if (found == record.values.end()) return false;
  place = static_cast<size_t>(found - record.values.begin());
  return true;
}

bool LogParser::Parse(std::string_view line, bool ended, LogRecord* record) {
  record->Clear();
  record->mark = {};
  line = bullets_.Take(WithoutEscapes(line, &plain_), &bullet_);
  line = WithoutCopied(line, copied_, &ascii_);
  line = open_dictionary_.Take(WithBars(line, &bars_));
  if (foreign_) line = WithEnglishWords(line, &english_);
  signs_ = kNoSigns;
  again_ = false;
  if (line.empty() && !result_.open()) return false;
  if (MayHoldLiteral(line) && !(literal_ = RowsOfLiteral(line)).empty()) return false;
  if (const std::string_view inner = LineInJson(line, &inner_); !inner.empty()) {
    const std::string_view own = line;
    std::string colours;
    line = WithoutEscapes(inner, &colours);
    if (line.data() != inner.data()) line = inner_ = colours;
    if (ParseLabelled(line, ended, record)) return KeepAbove(*record);
    // The object may be a record itself, and also contain a text.
    record->Clear();
    record->mark = {};
    line = own;
  }
  if (ParseLabelled(line, ended, record)) {
    named_ |= !record->mark.nameless;
    return KeepAbove(*record);
  }
  if (++above_lines_ > kNearAbove) above_ = -1;
  return false;
}

uint32_t LogParser::Signs(std::string_view line) {
  if (signs_ == kNoSigns) signs_ = SignsIn(line);
  return signs_;
}

bool LogParser::ParseLabelled(std::string_view line, bool ended, LogRecord* record) {
  int64_t epoch = -1;
  if (epoch_labels_) line.remove_prefix(ReadLabel(line, &epoch));
  const bool whole = ParseLine(line, ended, record);
  if (whole) MarkPhases(record);
  if (whole && record->mark.epoch < 0 && epoch >= 0) {
    record->mark.epoch = epoch;
    record->mark.batches |= record->mark.total > 0;
  }
  return whole;
}

bool LogParser::ParseLine(std::string_view line, bool ended, LogRecord* record) {
  line = WithoutSource(WithoutActor(line), &sourced_);
  record->line = line;
  if (bool whole = false; result_.Take(line, &whole)) {
    if (whole) TakeResult(record);
    again_ = whole && result_.again();
    return whole;
  }
  if (ParseInBox(line, record)) return !record->values.empty();
  const std::optional<LogMark> mark = FindMark(line);
  if (!mark) {
    const bool whole = ParseUnmarked(line, ended, record);
    if (sourced_) wrapped_ = false;
    return whole;
  }
  if (mark->kind == LogMark::Kind::kBar && table_.active() && ParseTable(line, record)) return true;
  continued_ = false;
  record->mark = *mark;
  record->prefix = line.substr(0, mark->begin);
  bool whole = false;
  switch (mark->kind) {
    case LogMark::Kind::kStep:
      whole = ParseStep(line, ended, record);
      break;
    case LogMark::Kind::kDictionary:
      whole = ParseDictionary(line.substr(mark->begin), ended, record);
      break;
    default:
      whole = ParseBar(line, ended, record);
  }
  wrapped_ = sourced_ && mark->kind != LogMark::Kind::kBar;
  if (wrapped_) OpenBlock(*record);
  return whole;
}

bool LogParser::ParseUnmarked(std::string_view line, bool ended, LogRecord* record) {
  if (line.find_first_not_of(" \t") == std::string_view::npos) return false;
  if (Continue(line, ended, record)) return true;
  if (ParseSides(line, record)) return !record->values.empty();
  if (ParseTable(line, record)) return !record->values.empty();
  if (ParseKeras(line, ended, record)) return true;
  if (OpensHistory(line)) return false;
  if (epoch_ >= 0 && line.back() == ']' && TakeUnnamed(line, ended, record)) return true;
  signs_ = SignsIn(line);
  if (const std::optional<LogMark> mark = FindCounter(line, signs_))
    return ParseCounter(line, *mark, ended, record);
  if (ParseUnder(line, ended, record)) return true;
  const std::optional<LogMark> ratio = RatioAnywhere(line);
  if (ratio) return ParseCounter(line, *ratio, ended, record);
  return alone_ && ParseAlone(line, ended, record);
}

bool LogParser::ParseStep(std::string_view line, bool ended, LogRecord* record) {
  const LogMark& mark = record->mark;
  const std::string_view rest = line.substr(mark.end);
  TakeBefore(record->prefix, record);
  // The text before the values names their data set.
  std::string_view head = record->prefix;
  if (!record->values.empty() && record->values[0].name.data() >= head.data())
    head = head.substr(0, static_cast<size_t>(record->values[0].name.data() - head.data()));
  record->evaluation = mark.evaluation || IsEvaluationPrefix(head);
  if (evaluating_) TakeStepOfEvaluation(record);
  size_t brace = rest.find('{');
  while (brace != std::string_view::npos && brace + 1 < rest.size() && rest[brace + 1] != '\'' &&
         rest[brace + 1] != '"')
    brace = rest.find('{', brace + 1);
  TakePairs(rest.substr(0, brace), ended || brace != std::string_view::npos, record);
  if (brace != std::string_view::npos) {
    const size_t first = record->values.size();
    const size_t end = TakeDictionary(rest.substr(brace), ended, record);
    GroupByName(rest.substr(0, brace), first, record);
    if (brace > 0 && rest.find("step", brace) != rest.npos) TakeAxes(record);
    TakePairs(rest.substr(std::min(rest.size(), brace + end)), ended, record);
  }
  if (mark.subject > 0) {
    record->axis = line.substr(mark.begin, mark.subject);
    TakeAxes(record);
  }
  if (record->values.empty()) TakeAfter(rest, ended, record);
  if (record->values.empty() && !HasLetter(record->prefix) && TakeNameless(rest, ended, record))
    record->mark.nameless = true;
  const bool bare = record->values.empty() && !HasLetter(rest);
  if (mark.alone || bare) OpenBlock(*record);
  if (bare) {
    bare_ = true;
    words_ = 0;
    heading_.Keep(record->prefix);
  }
  if (!HasTraining(*record)) {
    table_.StepAbove(mark.step);
    mark_above_ = mark;
    prefix_above_ = record->prefix;
  }
  NameOptimum(line, record);
  return !record->values.empty() || !record->absent.empty();
}

// Gives the minimised value a name: L-BFGS prints "At iterate    1    f=  0.69", R prints "iter  10
// value 231.1".
void LogParser::NameOptimum(std::string_view line, LogRecord* record) {
  const bool lbfgs = line.starts_with("At iterate ");
  if (record->values.empty() || !(lbfgs || line.starts_with("iter "))) return;
  LogRecord::Value& first = record->values[0];
  const bool alone = record->values.size() == 1;
  if ((lbfgs && first.name == "f") || (alone && first.name == "value")) first.name = kLossName;
}

bool LogParser::ParseBar(std::string_view line, bool ended, LogRecord* record) {
  std::string_view inside;
  const size_t at = record->mark.begin;
  if (ReadBar(line, &record->mark, &inside)) {
    record->how = LogRecord::Step::kBar;
    record->evaluation = IsEvaluationPrefix(record->prefix);
    record->prefix = WithoutPercent(record->prefix);
    TakeBefore(record->prefix, record);
    TakePairs(inside, ended || record->mark.end < line.size(), record);
    TakeGlobalStep(record);
    TakeEpochOfBar(record);
    // Below "Epoch 3/10" or "Epoch: 3", the bar belongs to this epoch.
    if ((headed_ || stamped_below_) && record->how == LogRecord::Step::kBar &&
        record->mark.epoch < 0 && EpochInPrefix(record->prefix) < 0)
      record->mark.epoch = epoch_;
    // The longest bar without a text before it belongs to the training.
    if (record->prefix.find_first_not_of(" \t") == std::string_view::npos &&
        record->mark.total >= shown_total_) {
      shown_ = record->mark.step;
      shown_total_ = record->mark.total;
    }
    if (record->how == LogRecord::Step::kBar && TakeEvaluationBar(record->prefix, record))
      return !record->values.empty();
    TakeOtherBar(record);
    if (!record->values.empty()) return true;
  }
  // Other output that is printed while a bar is shown follows the bar on the same line.
  const std::string_view rest = line.substr(at + 2);
  const std::optional<LogMark> next = FindMark(rest);
  if (!next || next->kind == LogMark::Kind::kBar) return false;
  record->Clear();
  record->mark = *next;
  record->prefix = {};
  return next->kind == LogMark::Kind::kStep
             ? ParseStep(rest, ended, record)
             : ParseDictionary(rest.substr(next->begin), ended, record);
}

// Takes a bar that has no series of the training, and another total: "Generating: 100%|###| 10/10
// [..., nfe=20]". It belongs to the training's step before it.
void LogParser::TakeOtherBar(LogRecord* record) {
  if (record->values.empty() || record->evaluation || record->how != LogRecord::Step::kBar) return;
  if (HasTraining(*record)) {
    bar_trained_ = true;
    bar_total_ = record->mark.total;
  } else if (bar_trained_ && record->mark.total != bar_total_) {
    record->how = LogRecord::Step::kEpoch;
    record->mark.step = std::max<int64_t>(0, epoch_);
  }
}

// Takes "global_step=140.0" from a bar of one epoch (NeMo, Lightning).
void LogParser::TakeGlobalStep(LogRecord* record) {
  const auto at =
      std::find_if(record->values.begin(), record->values.end(), [](const LogRecord::Value& v) {
        return v.name == "global_step" && IsWhole(v.value) && v.value >= 0;
      });
  if (at == record->values.end()) return;
  record->mark.step = static_cast<int64_t>(at->value);
  record->how = LogRecord::Step::kStated;
  record->values.erase(at);
}

// Takes the epoch of a bar: "3/120(t): 100%|", "[..., epoch=3/120, loss=2.5]".
void LogParser::TakeEpochOfBar(LogRecord* record) {
  LogMark epochs;
  const std::string_view prefix = record->prefix;
  if (EpochInPrefix(prefix) >= 0) return;
  if (ReadRatio(prefix, PassBlanks(prefix, 0), &epochs) > PassBlanks(prefix, 0)) {
    record->mark.epoch = epochs.step;
    return;
  }
  for (const LogRecord::Value& v : record->values) {
    if (v.name == "epoch" && IsWhole(v.value) && v.value >= 0)
      record->mark.epoch = static_cast<int64_t>(v.value);
  }
}

// Takes pairs before a mark: "loss=2.5 lr=1e-4 step=10", "| loss 9.2 | num_updates 100". Leaves out
// the words of a logger about the process, the time and the place.
void LogParser::TakeBefore(std::string_view text, LogRecord* record) {
  if (!HasLetter(text)) return;
  LogPairs pairs(text, &names_, decimals_);
  for (LogPair pair; pairs.Next(&pair);) {
    const bool training = HasTrainingWord(pair.name);
    if (IsOfTheLine(text, pair)) continue;
    if (pair.absent) {
      record->absent.push_back(pair.name);
      continue;
    }
    if (!training && IsInBrackets(text, pair.name)) continue;
    if (pair.after_sign || training || IsPartOfItsOwn(text, pair.name)) {
      record->values.push_back({pair.name, pair.value, pair.group, false, pair.limit});
    } else if (record->refused++ == 0) {
      record->first_refused = pair.name;
    }
  }
}

void LogParser::TakePairs(std::string_view text, bool ended, LogRecord* record) {
  LogPairs pairs(text, &names_, decimals_);
  for (LogPair pair; pairs.Next(&pair);) {
    // At the end of an unfinished line, a number may continue, and "nan" may be the beginning of a
    // name.
    if (pair.absent) {
      record->absent.push_back(pair.name);
    } else if (!ended && pair.at_end && (std::isfinite(pair.value) || !pair.after_sign)) {
      record->cut = true;
    } else if (record->how == LogRecord::Step::kBar && pair.named_after) {
      continue;                       // the value is the bar's own speed
    } else if (pair.name != "eta") {  // skips "eta: 2 days, 3:00:00"
      record->values.push_back({pair.name, pair.value, pair.group, false, pair.limit});
    }
  }
  if (record->refused == 0) record->first_refused = pairs.first_refused();
  record->refused += pairs.refused();
  if (sourced_ || wrapped_) wrapped_tail_ = pairs.Tail();
}

// Takes parts with different data: "[train] loss=40.1, acc=0.5, [valid] loss=35.5". The first part
// is not of an evaluation.
void LogParser::TakeParts(std::string_view text, bool ended, LogRecord* record) {
  const size_t valid = text.find("[valid] ");
  const size_t train = text.find("[train] ");
  if (train == std::string_view::npos || valid == std::string_view::npos || valid < train)
    return TakePairs(text, ended, record);
  TakePairs(text.substr(train + 8, valid - train - 8), true, record);
  const size_t first = record->values.size();
  TakePairs(text.substr(valid + 8), ended, record);
  for (size_t i = first; i < record->values.size(); ++i) record->values[i].evaluation = true;
}

}  // namespace plumbline::audit
