// Logs that trainers print: Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face, progress
// bars (docs/trainer_logs.md shows the shapes).
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/trainer_log/log_line.h"
#include "audit/readers/trainer_log/log_recognition.h"
#include "audit/readers/trainer_log/notebook.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLogLine = 1u << 20;
constexpr size_t kMostDocumentBytes = 256u << 20;

// What the file is, by its first bytes.
LogDocument DocumentAt(const std::string& path) {
  return DocumentOf(path, FirstBytes(path, "", Reader::kHeadBytes));
}
constexpr std::string_view kEvaluation = "val/";

// Steps that begin anew with each epoch or bar are counted on.
class StepCount {
 public:
  int64_t Of(const LogRecord& record) {
    const LogMark& mark = record.mark;
    const bool bar = record.how == LogRecord::Step::kBar;
    Pass& pass = passes_[(bar || mark.batches ? 1 : 0) + (record.evaluation ? 2 : 0)];
    const int64_t epoch = mark.epoch >= 0 ? mark.epoch : EpochInPrefix(record.prefix);
    if (BeginsAnew(pass, record, bar, epoch)) pass.before += Length(pass, mark);
    if (mark.step > pass.last) pass.stride = mark.step - pass.last;
    pass.any = true;
    pass.last = mark.step;
    pass.total = mark.total;
    if (epoch >= 0) {
      pass.epoch = epoch;
      if (pass.begins.size() < kMostEpochs) pass.begins.emplace(epoch, pass.before);
    }
    constexpr int64_t kMost = int64_t{1} << 53;
    pass.before = std::min(pass.before, kMost);
    return pass.before + mark.step;
  }

 private:
  static constexpr size_t kMostEpochs = 1 << 16;
  struct Pass {
    bool any = false;
    int64_t before = 0, last = 0, total = 0, epoch = -1, stride = 0;
    std::map<int64_t, int64_t> begins;  // epoch -> steps before it
  };

  // True: what came before is to be added. An epoch that was there before (a resume) has its own.
  static bool BeginsAnew(Pass& pass, const LogRecord& record, bool bar, int64_t epoch) {
    const int64_t step = record.mark.step;
    if (record.mark.batches && epoch >= 0 && epoch < pass.epoch) {
      const auto known = pass.begins.find(epoch);
      if (known != pass.begins.end()) {
        pass.before = known->second;
        return false;
      }
    }
    const bool fell = pass.any && step < pass.last;
    const bool later = epoch > pass.epoch && pass.any && step <= pass.last;
    if (bar) return fell || later;
    if (record.mark.batches && epoch < 0) return fell;
    return later && pass.epoch >= 0;
  }

  // Of a pass that ended: its total, else up to its last step, and one more if steps begin at 0.
  static int64_t Length(const Pass& pass, const LogMark& mark) {
    if (mark.total > 0 && pass.total > 0) return std::max(pass.total, pass.last);
    return pass.last + (mark.step == 0 ? std::max<int64_t>(1, pass.stride) : 0);
  }

  std::array<Pass, 4> passes_;
};

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
    if (kind_ == LogDocument::kNone) parser_.SetDecimals(DecimalsOf(report->path));
  }

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
    if (kind_ != LogDocument::kNone) return Gather(line);
    TakeLine(line.text, line.ended, sink);
    if (record_.cut)
      report().Add(line.offset,
                   "expected a newline behind the last line, found the end of the file: its last "
                   "value may be cut and was left out",
                   false);
  }

  bool ZerosAreDamage() const override { return false; }

  void Finish(PointSink* sink) override {
    if (kind_ != LogDocument::kNone) TakeDocument(sink);
    if (refused_.count > 0) {
      report().Note("expected a name and a sign before each number, found " +
                    std::to_string(refused_.count) +
                    " numbers without on lines with a step, the first behind " +
                    Quoted(refused_.first) + ": they are left out");
    }
    if (evaluation_batches_ > 0) {
      report().Note("expected the end of an evaluation, found " +
                    std::to_string(evaluation_batches_) +
                    " lines of batches within one: they are passed over");
    }
    if (counted_ > 0) {
      report().Note("expected a step in each line, found " + std::to_string(counted_) +
                    " dictionaries without one: steps are the numbers of logged rows, from 1");
    }
    if (shown_ > 0)
      report().Note("expected a step in each line, found " + std::to_string(shown_) +
                    " dictionaries without one: their steps are those of the progress bar above");
    if (epochs_ > 0)
      report().Note("expected a step in each line, found an epoch alone: the epoch is the step");
  }

 private:
  void TakeLine(std::string_view line, bool ended, PointSink* sink) {
    if (parser_.Parse(line, ended, &record_)) Emit(sink);
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
  static Decimals DecimalsOf(const std::string& path) {
    constexpr size_t kSample = 64 << 10;
    const std::string head = FirstBytes(path, "", kSample);
    size_t commas = 0, points = 0;
    for (std::string_view rest = head; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find_first_of("\r\n"));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      CountDecimals(line, &commas, &points);
    }
    return commas >= 2 && points == 0 ? Decimals::kComma : Decimals::kPoint;
  }

  void Emit(PointSink* sink) {
    ++report().records;
    columns_.clear();
    names_.Begin();
    refused_.Add(record_.refused, record_.first_refused);
    prefix_ = Prefix(sink);
    rank_bytes_ = prefix_.size();
    if (record_.evaluation) prefix_ += kEvaluation;
    for (const LogRecord::Value& v : record_.values) columns_.push_back(ColumnOf(sink, v));
    const int64_t step = StepOfRecord();
    const bool mean = record_.how == LogRecord::Step::kEpoch && last_step_ >= 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (mean && IsOfSteps(columns_[i])) columns_[i] = MeanOf(sink, record_.values[i]);
      if (record_.how != LogRecord::Step::kEpoch) MarkOfSteps(columns_[i]);
      sink->Add(step, columns_[i], record_.values[i].value);
    }
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
        step = Counted();
        break;
      case LogRecord::Step::kShown:
        ++shown_;
        step = record_.mark.step;
        break;
      case LogRecord::Step::kEpoch:
        if (last_step_ >= 0) return last_step_;
        ++epochs_;
        return record_.mark.step;
      default:
        step = steps_.Of(record_);
    }
    if (!record_.evaluation) last_step_ = step;
    return step;
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
  int64_t counted_ = 0, shown_ = 0, epochs_ = 0;
  int64_t last_step_ = -1;  // of the training; -1: none yet
  int64_t evaluation_batches_ = 0;
  LeftOut refused_;
  int64_t rank_ = -1;
  bool told_long_ = false;
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
