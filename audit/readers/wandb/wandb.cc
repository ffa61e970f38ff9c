// Offline runs of Weights & Biases (run-*.wandb).
#include "audit/readers/input/line_reader.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/wandb/wandb_log.h"
#include "audit/readers/wandb/wandb_record.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kRecordsAtOnce = 1u << 20;  // bytes of a call of Read

class WandbFile : public PointFile {
 public:
  WandbFile(std::unique_ptr<BlockReader> in, InputReport* report)
      : log_(std::move(in), report), report_(report) {}

  bool Read(PointSink* sink) override {
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
    if (records_.odd_steps() == 0) return;
    report_->Add(0,
                 "expected a whole number for _step, found " +
                     std::to_string(records_.odd_steps()) +
                     " rows with something else: their steps are counted on",
                 false);
  }

 private:
  WandbLog log_;
  InputReport* report_;
  WandbRecords records_;
};

bool IsWandb(std::string_view path, std::string_view head) {
  if (!IsCompressed(head)) return WandbLog::Recognise(head);
  return WandbLog::Recognise(FirstBytes(path, head, Reader::kHeadBytes));
}

std::unique_ptr<PointFile> OpenWandb(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<BlockReader> in = OpenBlocks(report);
  return in == nullptr ? nullptr : std::make_unique<WandbFile>(std::move(in), report);
}

}  // namespace

const PointFormat& WandbFormat() {
  static constexpr PointFormat kFormat = {"wandb", IsWandb, OpenWandb};
  return kFormat;
}

}  // namespace plumbline::audit
