// Reads offline runs of Weights & Biases (run-*.wandb).
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/wandb/wandb_log.h"
#include "audit/readers/wandb/wandb_record.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kRecordsAtOnce = 1u << 20;  // bytes per call of Read

// Returns "ID" for "run-ID.wandb"; "" for any other name.
std::string_view RunInName(std::string_view path) {
  constexpr std::string_view kBefore = "run-", kEnding = ".wandb";
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (!name.starts_with(kBefore) || !name.ends_with(kEnding)) return {};
  name.remove_prefix(kBefore.size());
  name.remove_suffix(kEnding.size());
  return name;
}

class WandbFile : public PointFile {
 public:
  WandbFile(std::unique_ptr<BlockReader> in, InputReport* report)
      : log_(std::move(in), report), report_(report) {}

  bool Read(PointSink* sink) override {
    // Used until the run's record gives its name.
    if (!named_) sink->Belongs(RunInName(report_->path), -1);
    named_ = true;
    const uint64_t until = log_.offset() + kRecordsAtOnce;
    std::string_view record;
    while (log_.offset() < until) {
      if (!log_.Next(&record)) return false;
      ++report_->records;
      if (!records_.Read(record, sink))
        report_->Add(log_.record_at(), "expected a record of a W&B run, found other bytes");
    }
    return true;
  }

  uint64_t bytes_read() const override { return log_.bytes_read(); }

  void Close(PointSink* /*sink*/) override {
    log_.Close();
    for (const auto& [key, value] : records_.config())
      report_->settings.emplace("config: " + key, value);
    NoteAxes(records_.axes());
    if (records_.odd_steps() == 0) return;
    report_->Add(0,
                 "expected a whole number for _step, found " +
                     std::to_string(records_.odd_steps()) +
                     " rows with other content: their steps are numbered from the previous row",
                 false);
  }

 private:
  void NoteAxes(const std::vector<std::string>& axes) {
    if (axes.empty()) return;
    std::string names;
    for (const std::string& axis : axes) names += (names.empty() ? "" : ", ") + Quoted(axis);
    report_->Note(axes.size() == 1
                      ? "its steps are those of " + names +
                            ", the axis that the run declares (define_metric)"
                      : "each series has the steps of the axis that the run declares for it "
                        "(define_metric): " +
                            names);
  }

  WandbLog log_;
  InputReport* report_;
  WandbRecords records_;
  bool named_ = false;
};

bool IsWandb(std::string_view path, std::string_view head) {
  if (!IsCompressed(head)) return WandbLog::Recognise(head);
  return WandbLog::Recognise(FirstBytes(path, head, Reader::kHeadBytes));
}

// Returns a number from the folder's name, "run-20240131_235959-id". It is not in seconds, but has
// the order of the times.
double WandbBegun(std::string_view path, std::string_view /*head*/) {
  constexpr std::string_view kBefore = "run-";
  constexpr size_t kDate = 8, kTime = 6;
  for (size_t at = path.find(kBefore); at != std::string_view::npos; at = path.find(kBefore, at)) {
    at += kBefore.size();
    const std::string_view date = path.substr(at, kDate);
    const std::string_view time = path.substr(std::min(path.size(), at + kDate + 1), kTime);
    if (time.size() < kTime || path[at + kDate] != '_') continue;
    const std::string digits = std::string(date) + std::string(time);
    if (digits.find_first_not_of("0123456789") == std::string::npos) return std::stod(digits);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::unique_ptr<PointFile> OpenWandb(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<BlockReader> in = OpenBlocks(report);
  return in == nullptr ? nullptr : std::make_unique<WandbFile>(std::move(in), report);
}

}  // namespace

const PointFormat& WandbFormat() {
  static constexpr PointFormat kFormat = {"wandb", IsWandb, OpenWandb, false, WandbBegun};
  return kFormat;
}

}  // namespace plumbline::audit
