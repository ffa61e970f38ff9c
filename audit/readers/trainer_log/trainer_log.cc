// Logs that trainers print: Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face, progress
// bars (docs/trainer_logs.md shows the shapes).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/role/role.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/log_text/line_labels.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/trainer_log/log_document.h"
#include "audit/readers/trainer_log/log_line.h"
#include "audit/readers/trainer_log/log_recognition.h"
#include "audit/readers/trainer_log/log_sentences.h"
#include "audit/readers/trainer_log/log_signs.h"
#include "audit/readers/trainer_log/row_steps.h"
#include "audit/readers/trainer_log/step_count.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLogLine = 1u << 20;
constexpr size_t kMostDocumentBytes = 256u << 20;

// What the file is, by its first bytes.
LogDocument DocumentAt(const std::string& path) {
  return DocumentOf(path, FirstBytes(path, "", Reader::kHeadBytes));
}
constexpr std::string_view kEvaluation = "val/";
constexpr std::string_view kMemoryLimit = "memory limit";

// What a log has on its lines and no series holds, for the notes of the report.
struct LeftOut {
  uint64_t count = 0;
  std::string first;  // the text before the first of them

  void Add(uint64_t more, std::string_view text) {
    if (count == 0 && more > 0) first = PlainName(text);
    count += more;
  }
};

class TrainerLogFile : public TextPointFile {
 public:
  TrainerLogFile(InputReport* report, std::unique_ptr<ByteStream> stream, LogDocument kind)
      : TextPointFile(report, std::move(stream),
                      kind == LogDocument::kNone ? kMostLogLine : kMostDocumentBytes,
                      LineEnds::kNewlineOrReturn),
        kind_(kind) {
    if (kind_ != LogDocument::kNone) return;
    constexpr size_t kSample = 64 << 10;
    const std::string head = FirstBytes(report->path, "", kSample);
    parser_.SetDecimals(DecimalsOf(head));
    parser_.SetLabelsAreEpochs(LabelsAreEpochs(report->path));
    parser_.LookAt(head);
  }

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    if (line.too_long) {
      if (!reported_long_)
        report().Add(line.offset,
                     "expected lines of at most " + std::to_string(kMostLogLine) +
                         " bytes, found a longer one: such lines were ignored",
                     false);
      reported_long_ = true;
      return;
    }
    if (kind_ != LogDocument::kNone) return Gather(line);
    TakeLine(line.text, line.ended, sink);
    if (record_.cut)
      report().Add(line.offset,
                   "expected a newline after the last line, found the end of the file: its last "
                   "value may be incomplete and was ignored",
                   false);
  }

  bool ZerosAreDamage() const override { return false; }

  void Pause(PointSink* sink) override { Release(first_held_ ? -1 : shown_at_, sink); }

  void Finish(PointSink* sink) override {
    if (kind_ != LogDocument::kNone) TakeDocument(sink);
    Release(first_held_ ? -1 : shown_at_, sink);
    if (refused_.count > 0) {
      report().Note("expected a name and a sign before each number, found " +
                    std::to_string(refused_.count) +
                    " numbers without a name on lines with a step, the first after " +
                    Quoted(refused_.first) + ": they are ignored");
    }
    if (evaluation_batches_ > 0) {
      report().Note("expected the end of an evaluation, found " +
                    std::to_string(evaluation_batches_) +
                    " lines of batches within one: they are ignored");
    }
    NoteSteps();
    if (parser_.foreign())
      report().Note("expected English words, found others: known words are translated");
    if (epochs_ > 0)
      report().Note(
          "expected a step in each line, found only an epoch: the epoch is used as the step");
  }

 private:
  void TakeLine(std::string_view line, bool ended, PointSink* sink) {
    const bool whole = parser_.Parse(line, ended, &record_);
    if (!held_.empty() && line.find_first_not_of(" \t") != std::string_view::npos)
      Release(parser_.shown(), sink);
    if (whole) {
      Emit(sink);
    } else {
      TakeSentence(line, sink);
    }
    evaluation_batches_ += record_.evaluation_batch ? 1 : 0;
  }

  void Gather(const TextLine& line) {
    if (document_.size() + line.text.size() < kMostDocumentBytes) document_.append(line.text);
  }

  // It is one JSON document: its lines are no more than its layout.
  void TakeDocument(PointSink* sink) {
    const std::string output = LinesOf(kind_, std::exchange(document_, {}));
    for (std::string_view rest = output; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find_first_of("\r\n"));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      TakeLine(line, true, sink);
    }
  }

  // One line counts a sample of the file, since a number such as "4,507" is both.
  static Decimals DecimalsOf(std::string_view head) {
    size_t commas = 0, points = 0;
    while (!head.empty()) {
      const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
      head.remove_prefix(std::min(head.size(), line.size() + 1));
      CountDecimals(line, &commas, &points);
    }
    return commas >= 2 && points == 0 ? Decimals::kComma : Decimals::kPoint;
  }

  // How the steps of lines without one were found.
  void NoteSteps() {
    constexpr char kExpected[] = "expected a step in each line, found ";
    if (counted_ > 0) {
      report().steps_are_rows = !stated_;
      report().Note(kExpected + std::to_string(counted_) +
                    " dictionaries without one: logged rows are numbered from 1 as steps (logged "
                    "row N, step unknown)");
    }
    if (shown_ > 0)
      report().Note(kExpected + std::to_string(shown_) +
                    " dictionaries without one: their steps are those of the progress bar below or "
                    "above");
    if (of_epochs_ > 0) {
      const std::string stride =
          row_steps_->stride() > 0
              ? ", a row every " + std::to_string(row_steps_->stride()) + " steps"
              : "";
      report().Note(kExpected + std::to_string(of_epochs_) +
                    " dictionaries without one: their steps follow from 'epoch' and the totals (" +
                    absl::StrFormat("%.6g", row_steps_->steps_per_epoch()) + " steps per epoch" +
                    stride + ")");
    }
    if (shares_ > 0)
      report().Note(kExpected + std::to_string(shares_) +
                    " shares of completed training: a step is a thousandth of the training");
    if (of_bars_ > 0)
      report().Note(kExpected + std::to_string(of_bars_) +
                    " progress bars: a value on one may belong to the step before or after");
    if (steps_.again() > 0)
      report().Note("expected rising steps, found that they restart " +
                    std::to_string(steps_.again()) +
                    " times while the loss continues: they are continued over epochs");
  }

  void TakeSentence(std::string_view line, PointSink* sink) {
    const uint32_t signs = parser_.Signs(line);
    if ((signs & kSignResume) != 0 && StatesResume(line)) {
      sink->Resumed();
    } else if ((signs & kSignCapacity) == 0) {
      return;
    } else if (const std::optional<double> limit = MemoryLimitIn(line); limit && last_step_ >= 0) {
      sink->Add(last_step_, names_.Of(sink, RankPrefix(line, sink), kMemoryLimit), *limit);
    }
  }

  // A memory's limit as a series, where it is stated or changes.
  void TakeLimit(int64_t step, const LogRecord::Value& v, PointSink* sink) {
    if (RoleByName(v.name) != SeriesRole::kMemory) return;
    double& known = limits_[prefix_];
    if (std::fabs(v.limit - known) <= 0.01 * known) return;
    known = v.limit;
    sink->Add(step, names_.Of(sink, prefix_.substr(0, rank_bytes_), kMemoryLimit), v.limit);
  }

  void Emit(PointSink* sink) {
    ++report().records;
    columns_.clear();
    // A bar may begin below the first row.
    first_held_ = record_.how == LogRecord::Step::kCounted && counted_ == 0 && shown_ == 0;
    names_.Begin();
    refused_.Add(record_.refused, record_.first_refused);
    prefix_ = RankPrefix(record_.prefix, sink);
    rank_bytes_ = prefix_.size();
    prefix_ += TaskPrefix(record_.prefix);
    if (record_.evaluation) prefix_ += kEvaluation;
    for (const LogRecord::Value& v : record_.values) columns_.push_back(ColumnOf(sink, v));
    const int64_t step = StepOfRecord();
    first_held_ = first_held_ && of_epochs_ == 0;
    shares_ += record_.mark.share ? 1 : 0;
    const bool mean = record_.how == LogRecord::Step::kEpoch && last_step_ >= 0;
    held_training_ = HasLoss(record_);
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (mean && IsOfSteps(columns_[i])) columns_[i] = MeanOf(sink, record_.values[i]);
      if (record_.how != LogRecord::Step::kEpoch) MarkOfSteps(columns_[i]);
      if (record_.how == LogRecord::Step::kShown || first_held_) {
        held_.emplace_back(columns_[i], record_.values[i].value);
        continue;
      }
      sink->Add(step, columns_[i], record_.values[i].value);
      if (record_.values[i].limit > 0) TakeLimit(step, record_.values[i], sink);
    }
  }

  // Adds the row that waited for the bar below it.
  void Release(int64_t below, PointSink* sink) {
    if (held_.empty()) return;
    if (std::exchange(first_held_, false)) {
      // A bar below it has its step; without one it is the first of the rows, which are counted.
      if (below < 0) {
        for (const auto& [column, value] : std::exchange(held_, {})) sink->Add(1, column, value);
        return;
      }
      counted_ = 0;
      seen_.clear();
      ++shown_;
    }
    const int64_t step = between_bars_.Step(std::max<int64_t>(0, shown_at_), below, held_training_);
    for (const auto& [column, value] : std::exchange(held_, {})) sink->Add(step, column, value);
    last_step_ = step;
  }

  uint32_t ColumnOf(PointSink* sink, const LogRecord::Value& v) {
    if (v.group.empty() && !v.evaluation) return names_.Of(sink, prefix_, v.name);
    std::string prefix = prefix_;
    if (v.evaluation) prefix += kEvaluation;
    if (!v.group.empty()) prefix.append(v.group).append("/");
    return names_.Of(sink, prefix, v.name);
  }

  // The mean of an epoch is not the value of the epoch's last step.
  uint32_t MeanOf(PointSink* sink, const LogRecord::Value& v) {
    return names_.Of(sink, prefix_.substr(0, rank_bytes_) + "epoch/", v.name);
  }
  bool IsOfSteps(uint32_t column) const { return column < of_steps_.size() && of_steps_[column]; }
  void MarkOfSteps(uint32_t column) {
    if (column == PointSink::kNoColumn || IsOfSteps(column)) return;
    if (column >= of_steps_.size()) of_steps_.resize(column + 1, false);
    of_steps_[column] = true;
  }

  int64_t StepOfRecord() {
    int64_t step = 0;
    switch (record_.how) {
      case LogRecord::Step::kCounted:
        step = WithoutStep();
        break;
      case LogRecord::Step::kShown:
        ++shown_;
        step = shown_at_ = record_.mark.step;
        break;
      case LogRecord::Step::kBar:
        ++of_bars_;
        step = steps_.Of(record_);
        break;
      case LogRecord::Step::kEpoch:
        if (last_step_ >= 0) return last_step_;
        ++epochs_;
        return record_.mark.step;
      default:
        step = steps_.Of(record_);
    }
    stated_ |= record_.how != LogRecord::Step::kCounted || of_epochs_ > 0;
    if (!record_.evaluation) last_step_ = step;
    return step;
  }

  // A file has one rank: the first that is named. What others print are series of their own.
  std::string RankPrefix(std::string_view text, PointSink* sink) {
    const int64_t rank = RankInPrefix(text);
    if (rank < 0) return "";
    if (rank_ < 0) {
      rank_ = rank;
      sink->Belongs("", rank);
    }
    return rank == rank_ ? "" : "rank" + std::to_string(rank) + "/";
  }

  // "task 1 step 60 loss 2.5": each task that is learnt begins anew. The first has no prefix.
  std::string TaskPrefix(std::string_view text) {
    const int64_t task = TaskInPrefix(text);
    if (task < 0) return "";
    if (task_ < 0) task_ = task;
    return task == task_ ? "" : "task" + std::to_string(task) + "/";
  }

  static bool HasLoss(const LogRecord& record) {
    return std::any_of(record.values.begin(), record.values.end(),
                       [](const LogRecord::Value& v) { return v.name == "loss"; });
  }

  // Of a row that states no step.
  int64_t WithoutStep() {
    std::optional<double> epoch;
    for (const LogRecord::Value& v : record_.values) {
      if (v.name == "epoch" && std::isfinite(v.value)) epoch = v.value;
    }
    if (epoch && !looked_for_totals_) {
      looked_for_totals_ = true;
      constexpr size_t kHead = 256 << 10, kTail = 64 << 10;
      row_steps_ =
          RowSteps::Of(FirstBytes(report().path, "", kHead), LastBytes(report().path, kTail));
    }
    if (!epoch || !row_steps_) return Counted();
    ++of_epochs_;
    return row_steps_->Next(*epoch, HasLoss(record_));
  }

  // The record that has a series again begins the next step.
  int64_t Counted() {
    bool again = counted_ == 0;
    for (size_t i = 0; i < columns_.size() && !again; ++i) {
      // Counts of tokens and epochs are in the dictionaries of an evaluation, too.
      again = HasTrainingWord(record_.values[i].name) &&
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

  const LogDocument kind_;
  std::string document_;  // unless it is kNone
  LogParser parser_;
  LogRecord record_;
  StepCount steps_;
  ColumnNames names_;
  std::vector<uint32_t> columns_;  // of the record's values
  std::vector<uint32_t> seen_;     // in the step that is counted
  std::vector<bool> of_steps_;     // by column: it has values of steps, not of epochs alone
  std::string prefix_;             // of the record's series
  size_t rank_bytes_ = 0;          // of it
  int64_t counted_ = 0, shown_ = 0, epochs_ = 0, of_epochs_ = 0, of_bars_ = 0, shares_ = 0;
  std::optional<RowSteps> row_steps_;
  bool looked_for_totals_ = false;
  bool stated_ = false;                            // some line has a step, or one that is known
  std::vector<std::pair<uint32_t, double>> held_;  // a row between two bars
  bool first_held_ = false;                        // it is the first row, without a bar above it
  bool held_training_ = false;                     // it has the training loss
  int64_t shown_at_ = 0;                           // of the bar above it
  BetweenBars between_bars_;
  std::map<std::string, double> limits_;  // of memory, by the series' prefix
  int64_t last_step_ = -1;                // of the training; -1: none yet
  int64_t evaluation_batches_ = 0;
  LeftOut refused_;
  int64_t rank_ = -1, task_ = -1;
  bool reported_long_ = false;
};

std::unique_ptr<PointFile> OpenLog(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<TrainerLogFile>(report, std::move(stream), DocumentAt(report->path));
}

}  // namespace

const PointFormat& TrainerLogFormat() {
  static constexpr PointFormat kFormat = {"trainer-log", IsTrainerLog, OpenLog};
  return kFormat;
}

}  // namespace plumbline::audit
