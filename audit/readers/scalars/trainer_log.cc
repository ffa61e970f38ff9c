// Logs that trainers print: Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face, progress
// bars (docs/trainer_logs.md shows the shapes).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/log_pairs.h"
#include "audit/readers/scalars/log_words.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLogLine = 1u << 20;
constexpr std::string_view kEvaluation = "val/";

// What one line says.
struct LogRecord {
  enum class Step { kSaid, kCounted, kBar };
  struct Value {
    std::string_view name;
    double value;
  };

  Step how = Step::kSaid;
  LogMark mark;
  std::string_view prefix;  // of the line, before the mark
  bool evaluation = false;
  std::vector<Value> values;
  bool cut = false;  // a last value was left out

  void Clear() {
    values.clear();
    evaluation = cut = false;
    how = Step::kSaid;
  }
};

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

// Lines into records. Keeps the line that continues an earlier one. Not thread-safe.
class LogParser {
 public:
  // `ended`: the line is whole. The record is valid until the next call and as long as the line.
  bool Parse(std::string_view line, bool ended, LogRecord* record) {
    record->Clear();
    line = WithoutEscapes(line, &plain_);
    const std::optional<LogMark> mark = FindMark(line);
    if (!mark) return Continue(line, ended, record);
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

 private:
  // "    train/CrossEntropyLoss=10.9" under a line that has the step alone.
  bool Continue(std::string_view line, bool ended, LogRecord* record) {
    if (!continued_) return false;
    const bool indented = line.starts_with(' ') || line.starts_with('\t');
    if (!indented || line.find('=') == std::string_view::npos) {
      continued_ = false;
      return false;
    }
    record->mark = continued_mark_;
    TakePairs(line, ended, record);
    return !record->values.empty();
  }

  bool ParseStep(std::string_view line, bool ended, LogRecord* record) {
    const LogMark& mark = record->mark;
    continued_ = mark.alone;
    continued_mark_ = mark;
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

  bool ParseDictionary(std::string_view text, bool ended, LogRecord* record) {
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
    // Without a step only what surely tells of training counts: settings are printed alike.
    return std::any_of(record->values.begin(), record->values.end(), [](const LogRecord::Value& v) {
      return HasTrainingWord(v.name) && v.name.find("rate") == std::string_view::npos &&
             v.name != "lr";
    });
  }

  bool ParseBar(std::string_view line, bool ended, LogRecord* record) {
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

  void TakePairs(std::string_view text, bool ended, LogRecord* record) {
    LogPairs pairs(text, &names_);
    for (LogPair pair; pairs.Next(&pair);) {
      // A number may go on; a "nan" may be the beginning of a name.
      if (!ended && pair.at_end && (std::isfinite(pair.value) || !pair.behind_sign)) {
        record->cut = true;
      } else {
        record->values.push_back({pair.name, pair.value});
      }
    }
  }

  void TakeDictionary(std::string_view text, bool ended, LogRecord* record) {
    dictionary_.Read(text);
    for (const LogDictionary::Member& member : dictionary_.members()) {
      if (!ended && member.at_end && std::isfinite(member.value)) {
        record->cut = true;
      } else {
        record->values.push_back({member.name, member.value});
      }
    }
  }

  std::string plain_;
  LogNames names_;
  LogDictionary dictionary_;
  bool continued_ = false;
  LogMark continued_mark_;
};

// Steps that begin anew with each epoch or bar are counted on.
class StepCount {
 public:
  int64_t Of(const LogRecord& record) {
    const bool bar = record.how == LogRecord::Step::kBar;
    Pass& pass = passes_[(bar ? 1 : 0) + (record.evaluation ? 2 : 0)];
    const int64_t epoch = EpochInPrefix(record.prefix);
    const LogMark& mark = record.mark;
    const bool fell = pass.any && mark.step < pass.last;
    const bool anew = bar ? fell || (epoch > pass.epoch && pass.any && mark.step <= pass.last)
                          : epoch > pass.epoch && pass.epoch >= 0 && mark.step <= pass.last;
    if (anew) pass.before += std::max(mark.total > 0 ? pass.total : 0, pass.last);
    pass.any = true;
    pass.last = mark.step;
    pass.total = mark.total;
    if (epoch >= 0) pass.epoch = epoch;
    constexpr int64_t kMost = int64_t{1} << 53;
    pass.before = std::min(pass.before, kMost);
    return pass.before + mark.step;
  }

 private:
  struct Pass {
    bool any = false;
    int64_t before = 0, last = 0, total = 0, epoch = -1;
  };
  std::array<Pass, 4> passes_;
};

class TrainerLogFile : public TextPointFile {
 public:
  TrainerLogFile(InputReport* report, std::unique_ptr<ByteStream> stream)
      : TextPointFile(report, std::move(stream), kMostLogLine, LineEnds::kNewlineOrReturn) {}

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    if (line.too_long) {
      if (!told_long_)
        report().Add(line.offset,
                     "expected lines of at most " + std::to_string(kMostLogLine) +
                         " bytes, found a longer one: such lines were passed over",
                     false);
      told_long_ = true;
      return;
    }
    if (parser_.Parse(line.text, line.ended, &record_)) Emit(sink);
    if (record_.cut)
      report().Add(line.offset,
                   "expected a newline behind the last line, found the end of the file: its last "
                   "value may be cut and was left out",
                   false);
  }

 private:
  void Emit(PointSink* sink) {
    ++report().records;
    columns_.clear();
    names_.Begin();
    std::string prefix = Prefix(sink);
    if (record_.evaluation) prefix += kEvaluation;
    for (const LogRecord::Value& v : record_.values)
      columns_.push_back(names_.Of(sink, prefix, v.name));
    const int64_t step = record_.how == LogRecord::Step::kCounted ? Counted() : steps_.Of(record_);
    for (size_t i = 0; i < columns_.size(); ++i)
      sink->Add(step, columns_[i], record_.values[i].value);
  }

  // A file has one rank: the first that is named. What others print are series of their own.
  std::string Prefix(PointSink* sink) {
    const int64_t rank = RankInPrefix(record_.prefix);
    if (rank < 0) return "";
    if (rank_ < 0) {
      rank_ = rank;
      sink->Belongs("", rank);
    }
    return rank == rank_ ? "" : "rank" + std::to_string(rank) + "/";
  }

  // The record that has a series again begins the next step.
  int64_t Counted() {
    bool again = counted_ == 0;
    for (size_t i = 0; i < columns_.size() && !again; ++i) {
      again = !IsEpochName(record_.values[i].name) &&
              std::find(seen_.begin(), seen_.end(), columns_[i]) != seen_.end();
    }
    if (again) {
      ++counted_;
      seen_.clear();
    }
    constexpr size_t kMostSeen = 4096;
    for (const uint32_t column : columns_)
      if (seen_.size() < kMostSeen) seen_.push_back(column);
    return counted_;
  }

  LogParser parser_;
  LogRecord record_;
  StepCount steps_;
  ColumnNames names_;
  std::vector<uint32_t> columns_;  // of the record's values
  std::vector<uint32_t> seen_;     // in the step that is counted
  int64_t counted_ = 0;
  int64_t rank_ = -1;
  bool told_long_ = false;
};

// ---- recognition ---------------------------------------------------------------------------

// Documents and sources quote logs; they are none.
bool IsDocument(std::string_view path) {
  static constexpr std::string_view kEndings[] = {
      ".md",  ".rst", ".py",   ".ipynb", ".c",    ".cc",    ".cpp",  ".h",    ".cu", ".rs",
      ".go",  ".js",  ".html", ".tex",   ".yaml", ".yml",   ".toml", ".json", ".sh", ".diff",
      ".xml", ".ini", ".cfg",  ".bib",   ".java", ".patch", ".csv",  ".tsv"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

// A comment or a quotation.
bool IsQuoted(std::string_view prefix) {
  const size_t first = prefix.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  prefix.remove_prefix(first);
  return prefix.starts_with('#') || prefix.starts_with("//") || prefix.starts_with("* ") ||
         prefix.starts_with("> ") || prefix.starts_with("- ") || prefix.starts_with("print") ||
         prefix.find("print(") != std::string_view::npos;
}

// Lines that surely tell of training.
size_t CountTraining(std::string_view text, bool all, size_t enough) {
  LogParser parser;
  LogRecord record;
  size_t count = 0;
  while (!text.empty() && count < enough) {
    const size_t end = text.find_first_of("\n\r");
    if (end == std::string_view::npos && !all) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!parser.Parse(line, true, &record) || IsQuoted(record.prefix)) continue;
    count += std::any_of(record.values.begin(), record.values.end(),
                         [](const LogRecord::Value& v) { return HasTrainingWord(v.name); })
                 ? 1
                 : 0;
  }
  return count;
}

// The banner before the first step may be long: a file that has none in its first megabyte may
// still have some at its end.
std::string LastBytes(std::string_view path, size_t size) {
  absl::StatusOr<InputFile> file = InputFile::Open(std::string(path));
  if (!file.ok() || file->size() < size) return "";
  std::string bytes(size, '\0');
  return file->ReadAt(file->size() - size, bytes.data(), size).ok() ? bytes : "";
}

bool RecogniseLog(std::string_view path, std::string_view head) {
  constexpr size_t kLook = 1 << 20;
  constexpr size_t kTail = 64 << 10;
  if (IsDocument(path) || JsonLinesFormat().recognise(path, head) ||
      CsvFormat().recognise(path, head))
    return false;
  const bool packed = IsCompressed(head);
  // Containers of other formats are full of zeros; a log has a stray one.
  if (!packed && std::count(head.begin(), head.end(), '\0') > 64) return false;
  const bool named = path.ends_with(".log") || path.ends_with(".out") || path.ends_with(".err") ||
                     path.ends_with(".txt");
  const size_t enough = named ? 1 : 2;
  const bool short_file = !packed && head.size() < Reader::kHeadBytes;
  if (CountTraining(head, short_file, enough) >= enough && !packed) return true;
  if (short_file) return false;
  const std::string more = FirstBytes(path, head, kLook);
  if (CountTraining(more, more.size() < kLook, enough) >= enough) return true;
  if (packed || more.size() < kLook) return false;
  return CountTraining(LastBytes(path, kTail), true, enough) >= enough;
}

std::unique_ptr<PointFile> OpenLog(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<TrainerLogFile>(report, std::move(stream));
}

}  // namespace

const PointFormat& TrainerLogFormat() {
  static constexpr PointFormat kFormat = {"trainer-log", RecogniseLog, OpenLog};
  return kFormat;
}

}  // namespace plumbline::audit
