// Reads runs of Sacred's FileStorageObserver: RUNS/ID/metrics.json is an object of series, each
// with lists of its steps, times and values. The settings are in config.json next to it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/readers/input/json_cursor.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/settings/plain_config.h"

namespace plumbline::audit {
namespace {

using SacredKind = JsonCursor::Kind;

constexpr size_t kMostSacred = 256u << 20;

struct SacredSeries {
  std::vector<double> steps, values;
};

// Reads a number, a word for a value that JSON cannot hold, or a numpy scalar: {"dtype": ...,
// "value": 2.5}. Returns nothing for any other content. If the text is not JSON, the cursor fails.
std::optional<double> SacredValue(JsonCursor* cursor, std::string_view text) {
  if (cursor->Peek() != SacredKind::kObject) {
    const size_t begin = cursor->offset();
    const SacredKind kind = cursor->Peek();
    if (!cursor->Skip() || (kind != SacredKind::kNumber && kind != SacredKind::kWord))
      return std::nullopt;
    return NumberOf(text.substr(begin, cursor->offset() - begin));
  }
  std::optional<double> value;
  cursor->EnterObject();
  for (std::string_view key; cursor->NextMember(&key);) {
    const bool is = key == "value" && cursor->Peek() != SacredKind::kObject;
    if (is) {
      value = SacredValue(cursor, text);
    } else if (!cursor->Skip()) {
      return std::nullopt;
    }
  }
  return value;
}

void ReadSacredList(JsonCursor* cursor, std::string_view text, std::vector<double>* out) {
  if (!cursor->EnterList()) return;
  while (cursor->NextElement()) {
    const std::optional<double> value = SacredValue(cursor, text);
    if (cursor->failed()) return;
    out->push_back(value.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
}

bool ReadSacredSeries(JsonCursor* cursor, std::string_view text, SacredSeries* series) {
  if (!cursor->EnterObject()) return false;
  for (std::string_view key; cursor->NextMember(&key);) {
    std::vector<double>* list = key == "steps"    ? &series->steps
                                : key == "values" ? &series->values
                                                  : nullptr;
    if (list != nullptr && cursor->Peek() == SacredKind::kList) {
      ReadSacredList(cursor, text, list);
    } else if (!cursor->Skip()) {
      return false;
    }
  }
  return !cursor->failed();
}

class SacredFile : public TextPointFile {
 public:
  SacredFile(InputReport* report, std::unique_ptr<ByteStream> stream)
      : TextPointFile(report, std::move(stream), kMostSacred, LineEnds::kNewline) {}

 protected:
  void Take(const TextLine& line, PointSink* /*sink*/) override {
    if (document_.size() + line.text.size() >= kMostSacred || line.too_long) {
      large_ = true;
      document_.clear();
    }
    if (!large_) document_.append(line.text).append(line.ended ? "\n" : "");
  }

  void Finish(PointSink* sink) override {
    if (large_) {
      report().Add(0, "expected a metrics.json of at most 256 MiB, found a larger one");
      return;
    }
    JsonCursor cursor(document_);
    if (cursor.EnterObject()) TakeMembers(&cursor, sink);
    if (cursor.failed())
      report().Add(cursor.offset(),
                   "expected " + std::string(cursor.expected()) + " in JSON, found another byte",
                   !cursor.cut());
    document_ = {};
    TakeJsonConfig(report().path, "config.json", &report().settings);
  }

 private:
  void TakeMembers(JsonCursor* cursor, PointSink* sink) {
    for (std::string_view key; cursor->NextMember(&key);) {
      const std::string name = PlainName(key);
      if (cursor->Peek() != SacredKind::kObject) {
        if (!cursor->Skip()) return;
        continue;
      }
      SacredSeries series;
      const bool whole = ReadSacredSeries(cursor, document_, &series);
      Emit(name, series, sink);
      if (!whole) return;
    }
  }

  void Emit(const std::string& name, const SacredSeries& series, PointSink* sink) {
    const size_t count = std::min(series.steps.size(), series.values.size());
    const uint32_t column = sink->Column(name);
    for (size_t i = 0; i < count; ++i) {
      if (IsWhole(series.steps[i])) {
        sink->Add(static_cast<int64_t>(series.steps[i]), column, series.values[i]);
      } else {
        sink->Unplaced(1);
      }
    }
    report().records += count;
  }

  std::string document_;
  bool large_ = false;
};

// Recognises `{"NAME": {"steps": [`, with members in any order.
bool IsSacred(std::string_view /*path*/, std::string_view head) {
  JsonCursor cursor(head);
  std::string_view key;
  if (!cursor.EnterObject() || !cursor.NextMember(&key)) return false;
  if (cursor.Peek() != SacredKind::kObject || !cursor.EnterObject() || !cursor.NextMember(&key))
    return false;
  const bool known = key == "steps" || key == "timestamps" || key == "values";
  return known && cursor.Peek() == SacredKind::kList;
}

std::unique_ptr<PointFile> OpenSacred(InputReport* report, const ScalarOptions& /*options*/) {
  std::unique_ptr<ByteStream> stream = OpenText(report);
  return stream == nullptr ? nullptr : std::make_unique<SacredFile>(report, std::move(stream));
}

}  // namespace

const PointFormat& SacredFormat() {
  static constexpr PointFormat kFormat = {"sacred", IsSacred, OpenSacred};
  return kFormat;
}

}  // namespace plumbline::audit
