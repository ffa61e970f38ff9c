// Parses lines that count epochs, batches or rows, and lines below the heading of an epoch.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_counter.h"
#include "audit/readers/trainer_log/log_counts.h"
#include "audit/readers/trainer_log/log_lead.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {
namespace {

// Handles "train Loss: 0.6 Acc: 0.7": the name of a split applies to the names after it.
void GroupBySplit(LogRecord* record) {
  static constexpr std::string_view kSplits[] = {"train", "val", "valid", "validation", "test"};
  std::string_view split;
  for (LogRecord::Value& v : record->values) {
    const auto* of =
        std::find_if(std::begin(kSplits), std::end(kSplits),
                     [&](std::string_view word) { return HasWordAt(v.name, 0, word); });
    if (of != std::end(kSplits)) {
      split = *of;
    } else if (v.group.empty()) {
      v.group = split;
    }
  }
}

// True for a line that announces an evaluation: "Test Error:", "Validation results:".
bool AnnouncesEvaluation(std::string_view line) {
  Trim(&line, kSpaces, kSpaces);
  if (line.size() > 40 || !line.ends_with(':') || line.find_first_of("0123456789") != line.npos)
    return false;
  return line.starts_with("Test") || line.starts_with("test") || line.starts_with("Val") ||
         line.starts_with("val") || line.starts_with("Eval") || line.starts_with("eval");
}

// Returns the text after the logger's words, without "(for one batch)" and the last word: "Training
// average loss" for "INFO     Training average loss at". Sets *group to "output" of "objective
// function for 'output' for".
std::string_view NameBeforeStep(std::string_view prefix, std::string_view* group) {
  static constexpr std::string_view kWords[] = {" after", " at", " for", " in", " (for", " (at"};
  static constexpr std::string_view kParts[] = {"  ", ": ", "] ", "- ", "| ", "\t"};
  constexpr int kMostWords = 4;
  Trim(&prefix, kSpaces, kSpaces);
  const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                  [&](std::string_view w) { return prefix.ends_with(w); });
  if (word == std::end(kWords)) return {};
  prefix.remove_suffix(word->size());
  if (prefix.ends_with(')')) prefix = prefix.substr(0, prefix.rfind('('));
  const size_t quote = prefix.ends_with('\'') ? prefix.find(" for '") : prefix.npos;
  if (quote != prefix.npos) {
    *group = prefix.substr(quote + 6, prefix.size() - quote - 7);
    prefix = prefix.substr(0, quote);
  }
  for (const std::string_view part : kParts) {
    if (const size_t at = prefix.rfind(part); at != std::string_view::npos)
      prefix.remove_prefix(at + part.size());
  }
  Trim(&prefix, kSpaces, kSpaces);
  return std::count(prefix.begin(), prefix.end(), ' ') < kMostWords ? prefix : std::string_view();
}

// Returns the end of a time at the line's beginning, "03:22:10.5: ", "2024-05-14 03:22:10,123 "; 0
// if there is none.
size_t StampEnd(std::string_view line) {
  constexpr std::ptrdiff_t kFewestColons = 2;
  static constexpr Bytes kStamp("0123456789-/:., T");
  size_t end = 0;
  while (end < line.size() && kStamp[line[end]]) ++end;
  return std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(end), ':') >=
                 kFewestColons
             ? end
             : 0;
}

}  // namespace

namespace {

// Returns the text before a drawn bar, "━━━" or "███"; nullopt if there is none.
std::optional<std::string_view> BeforeBar(std::string_view text) {
  const size_t at = std::min(text.find("\u2501"), text.find("\u2588"));
  return at == text.npos ? std::nullopt : std::optional(text.substr(0, at));
}

}  // namespace

// Parses Keras's lines "100/100 [====] - 5s 50ms/step - loss: 0.5 - val_loss: nan" below "Epoch
// 3/10". The epoch is the step. If the epoch has not ended, the bar has the batch.
bool LogParser::ParseKeras(std::string_view line, bool ended, LogRecord* record) {
  size_t at = EpochDone(line);
  if (at == 0 || epoch_ < 0) {
    at = UnfinishedBar(line, &record->mark.batch);
    if (at == 0) return false;
  }
  record->mark.step = std::max<int64_t>(0, epoch_);
  record->how = LogRecord::Step::kEpoch;
  TakePairs(line.substr(at), ended, record);
  if (record->values.empty() || !IsOtherKerasBar(line)) return !record->values.empty();
  record->evaluation = true;
  record->evaluation_batch = record->mark.batch >= 0;
  record->evaluated = !record->evaluation_batch;
  if (record->evaluation_batch) record->values.clear();
  return record->evaluated;
}

// True for a bar below the epoch's own one, with another number of batches: an evaluation.
bool LogParser::IsOtherKerasBar(std::string_view line) {
  const size_t redrawn = line.rfind('\b');
  const size_t begin = PassBlanks(line, redrawn == std::string_view::npos ? 0 : redrawn + 1);
  int64_t done = 0, total = 0;
  const size_t slash = ReadLogCount(line, begin, &done);
  if (slash == begin || slash >= line.size() || line[slash] != '/' ||
      ReadLogCount(line, slash + 1, &total) == slash + 1)
    return false;
  if (keras_epoch_ == epoch_) return total != keras_total_;
  keras_epoch_ = epoch_;
  keras_total_ = total;
  return false;
}

// Takes a value whose name precedes the step: "Cost after iteration 100: 0.6487", "Loss after 100
// steps: 0.65", "Training loss (for one batch) at step 100: 2.5", "Score at iteration 10 is 2.5"
// (DL4J), "Average objective function for 'output' for minibatches 0-99 is -0.2 over 12800 frames."
// (Kaldi).
bool LogParser::TakeAfter(std::string_view rest, bool ended, LogRecord* record) {
  static constexpr std::string_view kPhrases[] = {":", "=", "is "};
  static constexpr Bytes kClosing(" \t)");
  std::string_view group, name = NameBeforeStep(record->prefix, &group);
  if (!ended || name.empty()) return false;
  Trim(&rest, kClosing, kSpaces);
  const auto* sign = std::find_if(std::begin(kPhrases), std::end(kPhrases),
                                  [&](std::string_view s) { return rest.starts_with(s); });
  if (sign == std::end(kPhrases)) return false;
  rest.remove_prefix(sign->size());
  Trim(&rest, kSpaces, kSpaces);
  const std::optional<double> value = NumberOf(rest.substr(0, rest.find_first_of(" ,")));
  if (record->prefix.find("ScoreIterationListener") != std::string_view::npos) name = kLossName;
  if (!value || !HasTrainingWord(name)) return false;
  record->values.push_back({name, *value, group});
  return true;
}

// Handles "100/ 2000: 2.5". If the log has no names, takes the number without a name as the loss.
bool LogParser::TakeNameless(std::string_view rest, bool ended, LogRecord* record) {
  static constexpr Bytes kFront(" \t:");
  Trim(&rest, kFront, kSpaces);
  const std::optional<double> value = named_ || !ended ? std::nullopt : NumberOf(rest);
  if (value) record->values.push_back({kLossName, *value});
  return value.has_value();
}

// Takes "Train loss 10 2.5 Grad Norm 0.5", where `rest` begins with the value.
void LogParser::TakeNamedBefore(std::string_view rest, bool ended, LogRecord* record) {
  static constexpr Bytes kFront(" \t:");
  std::string_view name = record->prefix;
  Trim(&name, kSpaces, kSpaces);
  Trim(&rest, kFront, kSpaces);
  const size_t end = std::min(rest.size(), rest.find(' '));
  const std::optional<double> value = NumberOf(rest.substr(0, end));
  if (value) record->values.push_back({name, *value});
  TakePairs(rest.substr(end), ended, record);
}

// Parses a count without a reliable word. The line is only a record if it has a series of training.
bool LogParser::ParseWeak(std::string_view line, bool ended, LogRecord* record) {
  const LogMark& mark = record->mark;
  const std::string_view rest = line.substr(mark.end);
  if (mark.nameless) return TakeNameless(rest, ended, record);
  TakeBefore(record->prefix, record);
  TakePairs(rest, ended, record);
  if (record->values.empty()) TakeAfter(rest, ended, record);
  if (HasTraining(*record)) return true;
  record->Clear();
  record->line = line;
  return false;
}

// Takes a list without names below "Train Epoch: 3 [50%]" of the same logger: the last two numbers
// are the step and the learning rate.
bool LogParser::TakeUnnamed(std::string_view line, bool ended, LogRecord* record) {
  static constexpr std::string_view kNames[] = {
      "value[0]", "value[1]", "value[2]", "value[3]",  "value[4]",  "value[5]",  "value[6]",
      "value[7]", "value[8]", "value[9]", "value[10]", "value[11]", "value[12]", "value[13]"};
  const std::optional<LogMark> mark = ended ? UnnamedList(line) : std::nullopt;
  if (!mark || !heading_.BeginsWith(line.substr(0, mark->begin))) return false;
  std::vector<double> values;
  const char* const to = line.data() + line.size();
  for (const char* at = line.data() + mark->begin + 1; at < to; at += 2)
    at = ScanNumber(at, to, &values.emplace_back());
  const size_t unnamed = values.size() - 2;
  if (unnamed > std::size(kNames)) return false;
  record->mark = *mark;
  record->prefix = line.substr(0, mark->begin);
  record->how = LogRecord::Step::kStated;
  for (size_t i = 0; i < unnamed; ++i) record->values.push_back({kNames[i], values[i]});
  record->values.push_back({"lr", values.back()});
  return true;
}

// Parses a line that counts epochs, or batches within one.
bool LogParser::ParseCounter(std::string_view line, const LogMark& mark, bool ended,
                             LogRecord* record) {
  record->mark = mark;
  record->prefix = line.substr(0, mark.begin);
  record->how =
      mark.kind == LogMark::Kind::kEpoch ? LogRecord::Step::kEpoch : LogRecord::Step::kStated;
  record->evaluation = mark.evaluation || IsEvaluationPrefix(record->prefix);
  if (mark.weak) {
    const bool whole = ParseWeak(line, ended, record);
    const auto description = whole ? BeforeBar(record->prefix) : std::nullopt;
    if (!description) return whole;
    record->evaluation |= IsEvaluationPrefix(*description);
    TakeEvaluationBar(*description, record);
    return !record->values.empty();
  }
  const std::string_view rest = line.substr(mark.end);
  const bool bare = !HasLetter(rest);
  if (mark.epoch >= 0) {
    headed_ = mark.alone;
    stamped_below_ = mark.valued && bare;
    if (headed_ || stamped_below_ || mark.list) heading_.Keep(record->prefix);
    epoch_ = mark.epoch;
  } else if (mark.batches && headed_) {
    record->mark.epoch = epoch_;
  }
  under_evaluation_ = evaluating_ = false;
  if (!history_.empty() && TakeOfHistory(rest, ended, record)) return true;
  if (mark.list) {
    heading_.Keep(record->prefix);
    OpenBlock(*record);
    listed_ = true;
    return false;
  }
  if (mark.named_before) {
    TakeNamedBefore(rest, ended, record);
    return !record->values.empty();
  }
  TakeBefore(record->prefix, record);
  const size_t before = record->values.size();
  if (before > 0 || !TakeAfter(rest, ended, record)) TakeParts(rest, ended, record);
  if (!record->evaluation && before == 0 && !record->values.empty()) {
    const char* name = record->values[0].name.data();
    if (name >= rest.data() && name <= rest.data() + rest.size())
      record->evaluation =
          IsEvaluationPrefix(rest.substr(0, static_cast<size_t>(name - rest.data())));
  }
  // In "Test: [10/48]", only the last batch of an evaluation is used. It belongs to the step of the
  // training.
  if (record->evaluation && mark.batches) {
    if (mark.total > 0 && mark.step + 1 < mark.total) {
      record->evaluation_batch = !record->values.empty();
      record->values.clear();
      return false;
    }
    record->how = LogRecord::Step::kEpoch;
    record->mark.step = std::max<int64_t>(0, epoch_);
  }
  const bool heads = record->values.empty() && bare;
  const bool of_episode = bare && HasWordAt(line, mark.begin, "episode") && !HasTraining(*record);
  // Next to boxes with steps, episodes are another count.
  if (of_episode && boxed_steps_) record->how = LogRecord::Step::kEpoch;
  if (heads || of_episode || mark.alone || (mark.kind == LogMark::Kind::kEpoch && before == 0))
    OpenBlock(*record);
  if (of_episode) {
    bare_ = of_episode_ = true;
    words_ = kMostWords;
    heading_.Keep(record->prefix);
  }
  return !record->values.empty() || !record->absent.empty();
}

// Parses names and numbers below "Epoch 3/24": "train Loss: 0.6 Acc: 0.7".
bool LogParser::ParseUnder(std::string_view line, bool ended, LogRecord* record) {
  constexpr size_t kLongest = 240;
  if (TakeEvaluationAlone(line, ended, record)) return true;
  if (epoch_ < 0 || line.size() > kLongest || OpensEvaluation(line, record)) return false;
  if (AnnouncesEvaluation(line)) {
    under_evaluation_ = true;
    return false;
  }
  std::string_view text = line;
  // The prefix that a logger prints before the heading also precedes the lines below it.
  const size_t stamp = stamped_below_ ? StampEnd(line) : headed_ ? heading_.EndIn(line) : 0;
  text.remove_prefix(stamp);
  static constexpr Bytes kBullets(" \t*>");
  const bool bullet = line.find('*') < 4;
  Trim(&text, kBullets, kSpaces);
  if (text.empty() || !IsPairLetter(text[0]) || text.find('%') == text.size()) return false;
  const bool test = text.starts_with("Test") || text.starts_with("test");
  TakePairs(text, ended, record);
  const bool signs = text.find_first_of(":=|") != std::string_view::npos || bullet ||
                     (stamp > 0 && record->values.size() == 1);
  // The first name must begin the line, or follow the name of a data set: "Test set: Average loss:
  // 0.05".
  const bool first = !record->values.empty() && record->values[0].name.data() >= text.data() &&
                     record->values[0].name.data() < text.data() + 24;
  const bool below = headed_ || bullet || test || under_evaluation_ || stamp > 0;
  if (!HasTraining(*record) || !signs || !first || !below) {
    record->values.clear();
    record->refused = 0;
    return false;
  }
  const std::string_view head =
      text.substr(0, static_cast<size_t>(record->values[0].name.data() - text.data()));
  record->how = LogRecord::Step::kEpoch;
  record->mark.step = record->mark.epoch = epoch_;
  record->evaluation = test || bullet || under_evaluation_ || IsEvaluationHead(head);
  GroupBySplit(record);
  return true;
}

// Returns true for "Validation Loss:", "val_acc =", "Test accuracy:" at `at`, in any case.
static bool NamesEvaluation(std::string_view line, size_t at) {
  static constexpr std::string_view kSets[] = {"validation", "valid", "val", "evaluation",
                                               "eval",       "test",  "dev"};
  static constexpr std::string_view kValues[] = {"loss", "accuracy", "acc", "perplexity", "ppl"};
  for (const std::string_view set : kSets) {
    const size_t end = at + set.size();
    if (end >= line.size() || (line[end] != ' ' && line[end] != '_') ||
        !HasWordAt(line.substr(0, end), at, set))
      continue;
    const auto* value =
        std::find_if(std::begin(kValues), std::end(kValues),
                     [&](std::string_view word) { return HasWordAt(line, end + 1, word); });
    if (value == std::end(kValues)) return false;
    const size_t sign = PassBlanks(line, end + 1 + value->size());
    return sign < line.size() && (line[sign] == ':' || line[sign] == '=');
  }
  return false;
}

// Returns the place of a name of an evaluation that begins a line, or follows a logger's words:
// "[12:00:22 INFO] - eval_loss: 2.5", "[12:00:22 INFO] Validation perplexity: 5.4".
static size_t EvaluationAt(std::string_view line) {
  constexpr size_t kFar = 64;
  static constexpr Bytes kFirst("vVeEtTdD");
  for (size_t at = 0; at < std::min(kFar, line.size()); ++at) {
    if (!kFirst[line[at]]) continue;
    const std::string_view before = line.substr(0, at);
    const bool begins = before.ends_with("] ") || before.ends_with("- ") ||
                        std::none_of(before.begin(), before.end(), IsPartOfName);
    if (begins && NamesEvaluation(line, at)) return at;
  }
  return std::string_view::npos;
}

// Takes "val loss 4.998" on a separate line (llm.c), which belongs to the newest step.
bool LogParser::TakeEvaluationAlone(std::string_view line, bool ended, LogRecord* record) {
  static constexpr std::string_view kNames[] = {"val loss ", "val_loss ", "validation loss ",
                                                "eval loss ", "test loss "};
  Trim(&line, kSpaces, kSpaces);
  record->how = LogRecord::Step::kEpoch;
  record->mark.step = std::max<int64_t>(0, epoch_);
  if (const size_t at = EvaluationAt(line); at != std::string_view::npos) {
    TakePairs(line.substr(at), ended, record);
    GroupBySplit(record);
    return !record->values.empty();
  }
  for (const std::string_view name : kNames) {
    if (!line.starts_with(name) || line.find(' ', name.size()) != std::string_view::npos) continue;
    TakePairs(line, ended, record);
    return record->values.size() == 1;
  }
  return false;
}

}  // namespace plumbline::audit
