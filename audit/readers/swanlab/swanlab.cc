// Reads runs of SwanLab from the trainer's disk: `run-ID.swanlab` (file version 2) and
// `backup.swanlab` (version 1).
#include <memory>
#include <string>
#include <utility>

#include "audit/readers/scalars/point_file.h"
#include "audit/readers/settings/plain_config.h"
#include "audit/readers/swanlab/swanlab_record.h"
#include "audit/readers/wandb/wandb_log.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kSwanBytesAtOnce = 1u << 20;  // bytes per call of Read
constexpr std::string_view kSwanHeads[] = {{":SWL\xd6\xe1\x01", 7}, {":SWL\xd6\xe1\x02", 7}};

class SwanlabFile : public PointFile {
 public:
  SwanlabFile(std::unique_ptr<BlockReader> in, InputReport* report, bool json)
      : log_(std::move(in), report, kSwanHeads[json ? 0 : 1], "a SwanLab run"),
        report_(report),
        json_(json) {}

  bool Read(PointSink* sink) override {
    const uint64_t until = log_.offset() + kSwanBytesAtOnce;
    std::string_view record;
    while (log_.offset() < until) {
      if (!log_.Next(&record)) return false;
      ++report_->records;
      if (!(json_ ? records_.ReadJson(record, sink) : records_.Read(record, sink)))
        report_->Add(log_.record_at(), "expected a record of a SwanLab run, found other bytes");
    }
    return true;
  }

  uint64_t bytes_read() const override { return log_.bytes_read(); }

  void Close(PointSink* /*sink*/) override {
    log_.Close();
    TakeYamlConfig(report_->path, "files/config.yaml", &report_->settings);
  }

 private:
  WandbLog log_;
  InputReport* report_;
  SwanlabRecords records_;
  const bool json_;
};

bool IsSwanlab(std::string_view /*path*/, std::string_view head) {
  return head.starts_with(kSwanHeads[0]) || head.starts_with(kSwanHeads[1]);
}

std::unique_ptr<PointFile> OpenSwanlab(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<BlockReader> in = OpenBlocks(report);
  if (in == nullptr) return nullptr;
  const bool json = in->Peek(kSwanHeads[0].size()) == kSwanHeads[0];
  return std::make_unique<SwanlabFile>(std::move(in), report, json);
}

}  // namespace

const PointFormat& SwanlabFormat() {
  static constexpr PointFormat kFormat = {"swanlab", IsSwanlab, OpenSwanlab};
  return kFormat;
}

}  // namespace plumbline::audit
