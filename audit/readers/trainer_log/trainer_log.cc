// Reads logs that trainers print: Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face,
// progress bars (docs/trainer_logs.md shows examples).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/role/role.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/log_document/log_document.h"
#include "audit/readers/log_text/line_labels.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/csv_recognition.h"
#include "audit/readers/scalars/emptied_keys.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_axes.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/trainer_log/axis_counts.h"
#include "audit/readers/trainer_log/held_rows.h"
#include "audit/readers/trainer_log/log_line.h"
#include "audit/readers/trainer_log/log_notes.h"
#include "audit/readers/trainer_log/log_recognition.h"
#include "audit/readers/trainer_log/log_sentences.h"
#include "audit/readers/trainer_log/log_signs.h"
#include "audit/readers/trainer_log/row_steps.h"
#include "audit/readers/trainer_log/step_count.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLogLine = 1u << 20;
constexpr size_t kMostDocumentBytes = 256u << 20;

// Returns the kind of the file, from its first bytes.
LogDocument DocumentAt(const std::string& path) {
  return DocumentOf(path, FirstBytes(path, "", Reader::kHeadBytes));
}
constexpr std::string_view kEvaluation = "val/";
// Number of values that a name must have had before it is None.
constexpr uint64_t kFewestBeforeNone = 5;
constexpr std::string_view kMemoryLimit = "memory limit";

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
    parser_.SetDecimals(DecimalsIn(head));
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
    for (const std::string& row : literal_.Release())
      if (report().records == 0 || of_literal_) of_literal_ = TakeLine(row, true, sink);
    if (parser_.Finish(&record_)) Emit(sink);
    ReleaseBars(sink);
    Note();
  }

 private:
  // Returns true if the line was a row.
  bool TakeLine(std::string_view line, bool ended, PointSink* sink) {
    bool whole = false;
    do {
      whole = parser_.Parse(line, ended, &record_);
      if (!held_.empty() && line.find_first_not_of(" \t") != std::string_view::npos)
        Release(parser_.shown(), sink);
      if (whole) {
        TakeRow(sink);
      } else {
        TakeSentence(line, sink);
      }
      notes_.evaluation_batches += record_.evaluation_batch ? 1 : 0;
    } while (parser_.again());
    literal_.Offer(parser_.TakeLiteral());
    return whole;
  }

  void TakeRow(PointSink* sink) {
    if (record_.summary && report().records > 0) {
      notes_.summaries += record_.values.size();
    } else if (record_.mark.batch >= 0) {
      if (bars_.IsOfNext(record_)) {
        LogRecord newest;
        std::swap(newest, record_);
        ReleaseBars(sink);
        std::swap(newest, record_);
      }
      bars_.Keep(record_);
    } else {
      if (record_.how == LogRecord::Step::kEpoch) bars_.Ended(record_.mark.step);
      Emit(sink);
    }
  }

  // Releases bars of an epoch that did not end. The last bar has the values of the epoch. If the
  // log has no other rows, each bar has the values of its batch.
  void ReleaseBars(PointSink* sink) {
    std::vector<HeldBars::Bar> bars = bars_.Release();
    if (bars.empty()) return;
    const bool alone = report().records == 0;
    notes_.of_batches += alone ? bars.size() : 0;
    if (!alone) bars.erase(bars.begin(), bars.end() - 1);
    for (const HeldBars::Bar& bar : bars) {
      record_.Clear();
      record_.mark = {};
      record_.how = alone ? LogRecord::Step::kStated : LogRecord::Step::kEpoch;
      record_.mark.step = alone ? bar.batch : bars_.epoch();
      for (const auto& [name, value] : bar.values) record_.values.push_back({name, value});
      Emit(sink);
    }
  }

  void Gather(const TextLine& line) {
    if (document_.size() + line.text.size() < kMostDocumentBytes) document_.append(line.text);
  }

  // Takes one JSON document, whose line breaks have no meaning.
  void TakeDocument(PointSink* sink) {
    const std::string output = LinesOf(kind_, std::exchange(document_, {}));
    for (std::string_view rest = output; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find_first_of("\r\n"));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      TakeLine(line, true, sink);
    }
  }

  void Note() {
    report().steps_are_rows = notes_.counted > 0 && !stated_;
    notes_.literals = of_literal_ ? 0 : literal_.count();
    notes_.again = steps_.again();
    notes_.axes = axes_.Names();
    notes_.foreign = parser_.foreign();
    if (row_steps_) {
      notes_.steps_per_epoch = row_steps_->steps_per_epoch();
      notes_.stride = row_steps_->stride();
    }
    notes_.Report(&report());
    emptied_.Report(&report(), kFewestBeforeNone);
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

  // Adds the limit of a memory as a series when it is first stated, and when it changes.
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
    // If the epoch gave the first row its step, it gives all rows their step, because bars may be
    // above or below their row.
    if (record_.how == LogRecord::Step::kShown && row_steps_ && EpochOf(record_))
      record_.how = LogRecord::Step::kCounted;
    // The first bar may be below the first row.
    first_held_ =
        record_.how == LogRecord::Step::kCounted && notes_.counted == 0 && notes_.shown == 0;
    names_.Begin();
    notes_.refused.Add(record_.refused, record_.first_refused);
    notes_.lists.Add(record_.lists, record_.first_list);
    prefix_ = RankPrefix(record_.prefix, sink);
    rank_bytes_ = prefix_.size();
    prefix_ += TaskPrefix(record_.prefix);
    prefix_ += TakeClient();
    if (record_.evaluation) prefix_ += kEvaluation;
    for (const LogRecord::Value& v : record_.values) columns_.push_back(ColumnOf(sink, v));
    const int64_t step = StepOfRecord();
    for (const std::string_view name : record_.absent)
      if (const uint32_t column = names_.Find(prefix_ + std::string(name));
          column != PointSink::kNoColumn)
        emptied_.Null(column, name);
    first_held_ = first_held_ && notes_.of_epochs == 0 && notes_.of_above == 0;
    notes_.shares += record_.mark.share ? 1 : 0;
    notes_.unnamed += record_.mark.unnamed ? 1 : 0;
    notes_.evaluations += record_.evaluated ? 1 : 0;
    const bool several = axes_.any();
    const bool mean =
        record_.how == LogRecord::Step::kEpoch && last_step_ >= 0 && !record_.evaluation_bar;
    held_training_ = HasLoss(record_);
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (mean && IsOfSteps(columns_[i])) columns_[i] = MeanOf(sink, record_.values[i]);
      if (record_.how != LogRecord::Step::kEpoch) MarkOfSteps(columns_[i]);
      if (record_.how == LogRecord::Step::kShown || first_held_) {
        held_.emplace_back(columns_[i], ValueOf(record_.values[i]));
        continue;
      }
      int64_t at = step;
      if (several && !PlaceOnAxis(i, &at)) continue;
      sink->Add(at, columns_[i], ValueOf(record_.values[i]));
      emptied_.Value(columns_[i], at);
      if (record_.values[i].limit > 0) TakeLimit(step, record_.values[i], sink);
    }
  }

  // Adds the row that waited for the bar below it.
  void Release(int64_t below, PointSink* sink) {
    if (held_.empty()) return;
    if (std::exchange(first_held_, false)) {
      // A bar below the row has its step. If there is no bar, rows are counted, and this is the
      // first one.
      if (below < 0) {
        for (const auto& [column, value] : std::exchange(held_, {})) sink->Add(1, column, value);
        return;
      }
      notes_.counted = 0;
      seen_.clear();
      ++notes_.shown;
    }
    const int64_t step = between_bars_.Step(std::max<int64_t>(0, shown_at_), below, held_training_);
    for (const auto& [column, value] : std::exchange(held_, {})) sink->Add(step, column, value);
    last_step_ = step;
  }

  // Returns the value. A learning rate keeps the sign of its zero (SignedZero).
  static double ValueOf(const LogRecord::Value& v) {
    return v.value == 0 && RoleByName(v.name) != SeriesRole::kRate ? 0.0 : v.value;
  }

  uint32_t ColumnOf(PointSink* sink, const LogRecord::Value& v) {
    if (v.group.empty() && !v.evaluation) return names_.Of(sink, prefix_, v.name);
    std::string prefix = prefix_;
    if (v.evaluation) prefix += kEvaluation;
    if (!v.group.empty()) prefix.append(v.group).append("/");
    return names_.Of(sink, prefix, v.name);
  }

  // Returns the column of an epoch's mean, which is not the value of the epoch's last step.
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
        ++notes_.shown;
        step = shown_at_ = record_.mark.step;
        break;
      case LogRecord::Step::kBar:
        ++notes_.of_bars;
        step = steps_.Of(record_);
        break;
      case LogRecord::Step::kEpoch:
        if (last_step_ >= 0) return last_step_;
        ++notes_.epochs;
        return record_.mark.step;
      case LogRecord::Step::kRollout:
        return record_.mark.step;
      default:
        step = record_.axis.empty() ? steps_.Of(record_) : axes_.Of(record_.axis)->Of(record_);
    }
    stated_ |= record_.how != LogRecord::Step::kCounted || notes_.of_epochs > 0;
    const bool other = axes_.IsOther(record_.axis);
    if (!record_.evaluation && !other) last_step_ = step;
    return step;
  }

  // Sets the step of a value that has an axis of its own. Returns false if the series is of another
  // axis than the record.
  bool PlaceOnAxis(size_t i, int64_t* step) {
    std::string_view subject = record_.axis;
    for (const LogRecord::Axis& axis : record_.axes) {
      if (!StepAxes::Holds(axis.subject, record_.values[i].name)) continue;
      subject = axis.subject;
      *step = axis.step;
    }
    return axes_.IsHome(columns_[i], subject);
  }

  // Returns the prefix for the rank in `text`. The rank of the file is the first one that occurs.
  // Values of other ranks become separate series.
  std::string RankPrefix(std::string_view text, PointSink* sink) {
    const int64_t rank = RankInPrefix(text);
    if (rank < 0) return "";
    if (rank_ < 0) {
      rank_ = rank;
      sink->Belongs("", rank);
    }
    return rank == rank_ ? "" : "rank" + std::to_string(rank) + "/";
  }

  // Returns the prefix for a task: "task 1 step 60 loss 2.5". The steps restart with each task. The
  // first task has no prefix.
  std::string TaskPrefix(std::string_view text) {
    const int64_t task = TaskInPrefix(text);
    if (task < 0) return "";
    if (task_ < 0) task_ = task;
    return task == task_ ? "" : "task" + std::to_string(task) + "/";
  }

  // Removes the client from a row of a federated training: "Round 3 | Client 2 | Loss: 2.5".
  // Returns the prefix for its series.
  std::string TakeClient() {
    const auto client =
        std::find_if(record_.values.begin(), record_.values.end(), [](const LogRecord::Value& v) {
          return !v.name.empty() && (v.name[0] | 0x20) == 'c' && IsClientName(v.name) &&
                 IsWhole(v.value);
        });
    if (client == record_.values.end()) return "";
    const std::string prefix =
        "client " + std::to_string(static_cast<int64_t>(client->value)) + "/";
    record_.values.erase(client);
    return prefix;
  }

  // Returns the step of a row that does not state one.
  int64_t WithoutStep() {
    if (RepeatsSteps()) {
      ++notes_.of_above;
      return last_step_;
    }
    const std::optional<double> epoch = EpochOf(record_);
    if (epoch && !looked_for_totals_) {
      looked_for_totals_ = true;
      constexpr size_t kHead = 256 << 10, kTail = 64 << 10;
      row_steps_ =
          RowSteps::Of(FirstBytes(report().path, "", kHead), LastBytes(report().path, kTail));
    }
    if (!epoch || !row_steps_) return Counted();
    ++notes_.of_epochs;
    return row_steps_->Next(*epoch, HasLoss(record_));
  }

  // True for a row without a step whose losses have steps in all rows above it: "loss_dict = {...}"
  // of an exception. It belongs to the newest step.
  bool RepeatsSteps() const {
    if (!stated_ || last_step_ < 0 || row_steps_) return false;
    if (notes_.counted + notes_.of_epochs + notes_.shown > 0) return false;
    bool any = false;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!HasTrainingWord(record_.values[i].name)) continue;
      if (!IsOfSteps(columns_[i])) return false;
      any = true;
    }
    return any;
  }

  // Counts rows: the first record that repeats a series begins the next step.
  int64_t Counted() {
    bool again = notes_.counted == 0;
    for (size_t i = 0; i < columns_.size() && !again; ++i) {
      // Dictionaries of an evaluation also contain counts of tokens and epochs.
      again = HasTrainingWord(record_.values[i].name) &&
              std::find(seen_.begin(), seen_.end(), columns_[i]) != seen_.end();
    }
    if (again) {
      const std::optional<double> epoch = HasLoss(record_) ? EpochOf(record_) : std::nullopt;
      const auto rows = static_cast<int64_t>(notes_.counted);
      if (epoch) back_ = rows - counted_epochs_.Before(*epoch, rows);
      ++notes_.counted;
      seen_.clear();
    }
    constexpr size_t kMostSeen = 4096;
    for (const uint32_t column : columns_)
      if (seen_.size() < kMostSeen) seen_.push_back(column);
    return static_cast<int64_t>(notes_.counted) - back_;
  }

  const LogDocument kind_;
  std::string document_;  // used unless the kind is kNone
  LogParser parser_;
  LogRecord record_;
  StepCount steps_;
  AxisCounts axes_;  // steps of "rollout/step" and others
  ColumnNames names_;
  std::vector<uint32_t> columns_;  // columns of the record's values
  std::vector<uint32_t> seen_;     // columns that the counted step already has
  std::vector<bool> of_steps_;     // column -> true if it has values of steps, not only of epochs
  std::string prefix_;             // prefix of the record's series
  size_t rank_bytes_ = 0;          // length of its part for the rank
  std::optional<RowSteps> row_steps_;
  CountedEpochs counted_epochs_;
  int64_t back_ = 0;  // rows by which the count has fallen back
  bool looked_for_totals_ = false;
  bool stated_ = false;                            // some line has a step, or a step was found
  std::vector<std::pair<uint32_t, double>> held_;  // a row between two bars
  bool first_held_ = false;                        // held_ is the first row, without a bar above it
  bool held_training_ = false;                     // held_ has the training loss
  int64_t shown_at_ = 0;                           // step of the bar above it
  BetweenBars between_bars_;
  std::map<std::string, double> limits_;  // prefix of the series -> limit of the memory
  int64_t last_step_ = -1;                // last step of the training; -1 if there is none yet
  LogNotes notes_;
  EmptiedKeys emptied_;
  HeldLiteral literal_;
  bool of_literal_ = false;  // the rows are from a literal
  HeldBars bars_;
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
