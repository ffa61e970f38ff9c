// Reads files of samples, {"input": "...", "output": "...", "score": 1.0, "step": 3}, one per line.
// The series `reward` is the mean of the scores of each step.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/rollout/known_maps.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostSampleLine = 64u << 20;
constexpr size_t kSampleHead = 1u << 20;
constexpr int64_t kMostStep = int64_t{1} << 53;

struct Sample {
  std::optional<int64_t> step;
  std::optional<double> score;
};

// Returns the step and the score of a line, if it has them.
Sample SampleOf(std::string_view line) {
  Sample sample;
  JsonCursor cursor(line);
  if (cursor.Peek() != JsonCursor::Kind::kObject || !cursor.EnterObject()) return sample;
  for (std::string_view key; cursor.NextMember(&key);) {
    const bool step = key == "step", score = key == "score" || key == "reward";
    const JsonCursor::Kind kind = cursor.Peek();
    const size_t begin = cursor.offset();
    if (!cursor.Skip()) break;
    if (kind != JsonCursor::Kind::kNumber && kind != JsonCursor::Kind::kWord) continue;
    if (!step && !score) continue;
    const std::optional<double> value = NumberOf(line.substr(begin, cursor.offset() - begin));
    if (score && value && !sample.score) sample.score = value;
    if (step && value && *value >= 0 && *value < kMostStep && *value == std::trunc(*value))
      sample.step = static_cast<int64_t>(*value);
  }
  return sample;
}

// Not thread-safe.
class SamplesFile : public TextPointFile {
 public:
  SamplesFile(InputReport* report, std::unique_ptr<ByteStream> stream)
      : TextPointFile(report, std::move(stream), kMostSampleLine, LineEnds::kNewline) {}

 protected:
  void Take(const TextLine& line, PointSink* /*sink*/) override {
    if (line.too_long || line.text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const Sample sample = SampleOf(line.text);
    if (!sample.step || !sample.score) {
      ++without_;
      return;
    }
    ++report().records;
    auto& [sum, count] = steps_[*sample.step];
    sum += *sample.score;
    ++count;
  }

  void Finish(PointSink* sink) override {
    const uint32_t column = sink->Column("reward");
    for (const auto& [step, scores] : steps_)
      sink->Add(step, column, scores.first / static_cast<double>(scores.second));
    if (without_ > 0)
      report().Note("expected a step and a score in each sample, found " +
                    std::to_string(without_) + " without: they are ignored");
  }

 private:
  std::map<int64_t, std::pair<double, uint64_t>> steps_;  // step -> sum and number of the scores
  uint64_t without_ = 0;
};

std::string FirstSample(std::string_view path, std::string_view head) {
  const std::string text = FirstBytes(path, head, kSampleHead);
  return text.substr(0, text.find('\n'));
}

bool IsSamples(std::string_view path, std::string_view head) {
  if (!head.starts_with('{') || !HoldsSamplesAlone(head)) return false;
  const Sample sample = SampleOf(FirstSample(path, head));
  return sample.step && sample.score;
}

// Returns the step in place of a time, so that the files of one folder are ordered by their steps.
double StepOfSamples(std::string_view path, std::string_view head) {
  const Sample sample = SampleOf(FirstSample(path, head));
  return sample.step ? static_cast<double>(*sample.step) : std::nan("");
}

std::unique_ptr<PointFile> OpenSamples(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  return stream == nullptr ? nullptr : std::make_unique<SamplesFile>(report, std::move(stream));
}

}  // namespace

const PointFormat& SamplesFormat() {
  static constexpr PointFormat kFormat = {"samples", IsSamples, OpenSamples, true, StepOfSamples};
  return kFormat;
}

}  // namespace plumbline::audit
