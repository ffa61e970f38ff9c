// Logs that trainers print: Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face, progress
// bars (docs/trainer_logs.md shows the shapes).
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "audit/readers/scalars/column_names.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/trainer_log/log_line.h"
#include "audit/readers/trainer_log/log_recognition.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLogLine = 1u << 20;
constexpr std::string_view kEvaluation = "val/";

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

  bool ZerosAreDamage() const override { return false; }

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

std::unique_ptr<PointFile> OpenLog(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  if (stream == nullptr) return nullptr;
  return std::make_unique<TrainerLogFile>(report, std::move(stream));
}

}  // namespace

const PointFormat& TrainerLogFormat() {
  static constexpr PointFormat kFormat = {"trainer-log", IsTrainerLog, OpenLog};
  return kFormat;
}

}  // namespace plumbline::audit
