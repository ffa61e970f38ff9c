#include "audit/readers/trainer_log/log_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

// "100%|███| 10/100 [00:01<00:10, 9.1it/s, loss=2.3]": where it stands, and what is in the
// brackets.
bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside) {
  const size_t bar = line.find('|', mark->begin + 2);
  if (bar == std::string_view::npos) return false;
  const std::string_view rest = line.substr(bar + 1);
  const size_t slash = rest.find('/');
  const size_t open = rest.find('[');
  if (slash == std::string_view::npos || open == std::string_view::npos || open < slash)
    return false;
  const std::optional<double> step = NumberOf(rest.substr(0, slash));
  const std::optional<double> total = NumberOf(rest.substr(slash + 1, open - slash - 1));
  if (!step || !total || !IsWhole(*step) || !IsWhole(*total)) return false;
  mark->step = static_cast<int64_t>(*step);
  mark->total = static_cast<int64_t>(*total);
  const size_t close = rest.find(']', open);
  *inside = rest.substr(open + 1, close == std::string_view::npos ? close : close - open - 1);
  mark->end = close == std::string_view::npos ? line.size() : bar + 1 + close + 1;
  return true;
}

// "100/100 " at the line's beginning, all of an epoch's batches: where what follows begins; 0: it
// is something else.
size_t EpochDone(std::string_view line) {
  int64_t done = 0, total = 0;
  const char* to = line.data() + line.size();
  const char* begin = line.data() + std::min(line.size(), line.find_first_not_of(" \b"));
  const auto first = std::from_chars(begin, to, done);
  if (first.ec != std::errc() || first.ptr == to || *first.ptr != '/') return 0;
  const auto second = std::from_chars(first.ptr + 1, to, total);
  if (second.ec != std::errc() || done != total || done < 1) return 0;
  const auto at = static_cast<size_t>(second.ptr - line.data());
  const std::string_view rest = line.substr(at);
  return rest.starts_with(" [=") || rest.starts_with(" - ") || rest.starts_with(" \u2501") ? at : 0;
}

}  // namespace

// Keras: "Epoch 3/10", and below it "100/100 [====] - 5s 50ms/step - loss: 0.5 - val_loss: nan".
// The epoch is the step.
bool LogParser::ParseKeras(std::string_view line, bool ended, LogRecord* record) {
  constexpr std::string_view kEpoch = "Epoch ";
  if (line.starts_with(kEpoch)) {
    int64_t epoch = 0;
    const auto read =
        std::from_chars(line.data() + kEpoch.size(), line.data() + line.size(), epoch);
    if (read.ec == std::errc() && epoch >= 0 && epoch < (int64_t{1} << 40)) epoch_ = epoch;
    return false;
  }
  const size_t at = EpochDone(line);
  if (at == 0 || epoch_ < 0) return false;
  record->mark.step = epoch_;
  TakePairs(line.substr(at), ended, record);
  return !record->values.empty();
}

bool LogParser::Parse(std::string_view line, bool ended, LogRecord* record) {
  record->Clear();
  record->mark = {};
  line = WithoutEscapes(line, &plain_);
  record->line = line;
  const std::optional<LogMark> mark = FindMark(line);
  if (!mark) return Continue(line, ended, record) || ParseKeras(line, ended, record);
  continued_ = false;
  record->mark = *mark;
  record->prefix = line.substr(0, mark->begin);
  switch (mark->kind) {
    case LogMark::Kind::kStep:
      return ParseStep(line, ended, record);
    case LogMark::Kind::kDictionary:
      return ParseDictionary(line.substr(mark->begin), ended, record);
    default:
      return ParseBar(line, ended, record);
  }
}

// "    train/CrossEntropyLoss=10.9" under a line that has the step alone.
bool LogParser::Continue(std::string_view line, bool ended, LogRecord* record) {
  if (!continued_) return false;
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  if (!indented || line.find('=') == std::string_view::npos) {
    continued_ = false;
    return false;
  }
  record->mark = continued_mark_;
  record->mark.alone = false;
  record->prefix = continued_prefix_;
  TakePairs(line, ended, record);
  return !record->values.empty();
}

bool LogParser::ParseStep(std::string_view line, bool ended, LogRecord* record) {
  const LogMark& mark = record->mark;
  continued_ = mark.alone;
  if (continued_) {
    continued_mark_ = mark;
    continued_prefix_ = record->prefix;
  }
  record->evaluation = mark.evaluation || IsEvaluationPrefix(record->prefix);
  const std::string_view rest = line.substr(mark.end);
  size_t brace = rest.find('{');
  while (brace != std::string_view::npos && brace + 1 < rest.size() && rest[brace + 1] != '\'' &&
         rest[brace + 1] != '"')
    brace = rest.find('{', brace + 1);
  TakePairs(rest.substr(0, brace), ended || brace != std::string_view::npos, record);
  if (brace != std::string_view::npos) TakeDictionary(rest.substr(brace), ended, record);
  return !record->values.empty();
}

bool LogParser::ParseDictionary(std::string_view text, bool ended, LogRecord* record) {
  record->how = LogRecord::Step::kCounted;
  TakeDictionary(text, ended, record);
  // It may say its step itself.
  int best = -1;
  for (const LogRecord::Value& v : record->values) {
    const int rank = IsEpochName(v.name) ? -1 : StepNameRank(v.name);
    if (rank < 0 || !IsWhole(v.value) || (best >= 0 && rank >= best)) continue;
    best = rank;
    record->how = LogRecord::Step::kSaid;
    record->mark.step = static_cast<int64_t>(v.value);
  }
  std::erase_if(record->values, [](const LogRecord::Value& v) {
    return !IsEpochName(v.name) && StepNameRank(v.name) >= 0;
  });
  if (record->how == LogRecord::Step::kSaid) return !record->values.empty();
  if (IsSample()) return false;
  // Without a step only what surely tells of training counts: settings are printed alike.
  return std::any_of(record->values.begin(), record->values.end(), [](const LogRecord::Value& v) {
    return HasTrainingWord(v.name) && v.name.find("rate") == std::string_view::npos &&
           v.name != "lr";
  });
}

// One example of an evaluation and how it went (lm-eval's samples): a number of its own, or mostly
// texts. It is no step of a training.
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

bool LogParser::ParseBar(std::string_view line, bool ended, LogRecord* record) {
  std::string_view inside;
  const size_t at = record->mark.begin;
  if (ReadBar(line, &record->mark, &inside)) {
    record->how = LogRecord::Step::kBar;
    record->evaluation = IsEvaluationPrefix(record->prefix);
    TakePairs(inside, ended || record->mark.end < line.size(), record);
    if (!record->values.empty()) return true;
  }
  // What is printed while a bar is shown stands behind it.
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

void LogParser::TakePairs(std::string_view text, bool ended, LogRecord* record) {
  LogPairs pairs(text, &names_);
  for (LogPair pair; pairs.Next(&pair);) {
    // A number may go on; a "nan" may be the beginning of a name.
    if (!ended && pair.at_end && (std::isfinite(pair.value) || !pair.behind_sign)) {
      record->cut = true;
    } else if (!record->mark.alone || pair.name != "eta") {  // "[step=10/100,eta=2 days, 3:00:00]"
      record->values.push_back({pair.name, pair.value});
    }
  }
}

void LogParser::TakeDictionary(std::string_view text, bool ended, LogRecord* record) {
  dictionary_.Read(text);
  for (const LogDictionary::Member& member : dictionary_.members()) {
    if (!ended && member.at_end && std::isfinite(member.value)) {
      record->cut = true;
    } else {
      record->values.push_back({member.name, member.value});
    }
  }
}

}  // namespace plumbline::audit
