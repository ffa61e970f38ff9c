// Reads MLflow's file store: mlruns/EXPERIMENT/RUN/metrics/NAME, one file per series, one line per
// point with its time in milliseconds, value and step.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/settings/plain_config.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kMetrics = "/metrics/";
constexpr size_t kMostMetricLine = 1 << 16;

struct MetricLine {
  int64_t step = 0;
  double value = 0;
};

// Parses "1700000000000 2.5 10". Lines of old stores have no step.
std::optional<MetricLine> ReadMetricLine(std::string_view text, int64_t counted) {
  int64_t time = 0;
  const char* to = text.data() + text.size();
  const auto first = std::from_chars(text.data(), to, time);
  if (first.ec != std::errc() || first.ptr == to || *first.ptr != ' ' || time < 1'000'000'000)
    return std::nullopt;
  MetricLine line;
  const char* value = ScanNumber(first.ptr + 1, to, &line.value);
  if (value == first.ptr + 1) return std::nullopt;
  line.step = counted;
  if (value == to) return line;
  if (*value != ' ') return std::nullopt;
  const auto step = std::from_chars(value + 1, to, line.step);
  return step.ec == std::errc() && step.ptr == to ? std::optional(line) : std::nullopt;
}

// Splits "/a/mlruns/0/RUN/metrics/train/loss" into RUN and "train/loss".
bool PlaceOf(std::string_view path, std::string_view* run, std::string_view* series) {
  const size_t at = path.rfind(kMetrics);
  if (at == std::string_view::npos) return false;
  *series = path.substr(at + kMetrics.size());
  *run = path.substr(0, at);
  *run = run->substr(run->rfind('/') + 1);
  return !run->empty() && !series->empty();
}

// "/a/RUN/metrics/train/loss" -> "/a/RUN/params", where each file is a parameter.
std::string ParametersOf(const std::string& path) {
  return path.substr(0, path.rfind(kMetrics)) + "/params";
}

// Returns true if no other series of the run has a lower path. Only the first series reads the
// parameters.
bool IsFirstMetric(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string folder = path.substr(0, path.rfind(kMetrics) + kMetrics.size());
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code none;
    if (at->is_regular_file(none) && at->file_size(none) > 0 && at->path().string() < path)
      return false;
  }
  return true;
}

class MlflowFile : public TextPointFile {
 public:
  MlflowFile(InputReport* report, std::unique_ptr<ByteStream> stream)
      : TextPointFile(report, std::move(stream), kMostMetricLine, LineEnds::kNewline) {}

 protected:
  void Take(const TextLine& line, PointSink* sink) override {
    if (line.text.empty() && !line.too_long) return;
    std::string_view run, series;
    if (!begun_ && PlaceOf(report().path, &run, &series)) {
      sink->Belongs(run, -1);
      if (IsFirstMetric(report().path))
        AddFolderConfig(ParametersOf(report().path), &report().settings);
      column_ = sink->Column(PlainName(series));
    }
    begun_ = true;
    const std::optional<MetricLine> point = ReadMetricLine(line.text, counted_);
    if (!point) {
      report().Add(line.offset, "expected a time, a value and a step, found another line",
                   line.ended);
      return;
    }
    // If a trainer passes no step, MLflow writes step 0 each time.
    stepped_ |= point->step != 0;
    const bool again = !stepped_ && counted_ > 0;
    numbered_ += again ? 1 : 0;
    sink->Add(again ? counted_ : point->step, column_, point->value);
    ++counted_;
    ++report().records;
  }

  void Finish(PointSink* /*sink*/) override {
    if (numbered_ > 0)
      report().Note("expected a step with each point, found " + std::to_string(numbered_) +
                    " more points with step 0: the points are numbered from 0");
  }

 private:
  bool begun_ = false;
  uint32_t column_ = PointSink::kNoColumn;
  // Number of points; number of points that got their number as step.
  int64_t counted_ = 0, numbered_ = 0;
  bool stepped_ = false;  // some point has a step other than 0
};

bool IsMlflow(std::string_view path, std::string_view head) {
  std::string_view run, series;
  if (!PlaceOf(path, &run, &series)) return false;
  return ReadMetricLine(head.substr(0, head.find('\n')), 0).has_value();
}

std::unique_ptr<PointFile> OpenMlflow(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  return stream == nullptr ? nullptr : std::make_unique<MlflowFile>(report, std::move(stream));
}

}  // namespace

const PointFormat& MlflowFormat() {
  static constexpr PointFormat kFormat = {"mlflow", IsMlflow, OpenMlflow};
  return kFormat;
}

}  // namespace plumbline::audit
