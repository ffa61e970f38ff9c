// Field numbers are those of wandb_internal.proto.
#include "audit/readers/wandb/wandb_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "audit/readers/input/wire.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

enum RecordField : uint32_t {
  kRecordHistory = 2,
  kConfig = 5,
  kStats = 7,
  kMetric = 12,
  kRun = 17,
  kExit = 18
};

constexpr int64_t kMostStep = int64_t{1} << 62;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Returns the number in a value. Words for values that JSON cannot hold (NaN, Infinity) are
// numbers, with or without quotes.
std::optional<double> NumberOfField(std::string_view json) {
  if (json.empty()) return std::nullopt;
  if (static_cast<unsigned char>(json.front()) <= ' ' ||
      static_cast<unsigned char>(json.back()) <= ' ')
    json = Trimmed(json);
  if (json.empty()) return std::nullopt;
  const char first = json.front();
  if (first == '-' || (first >= '0' && first <= '9')) {
    double value = 0;
    const auto [end, error] = std::from_chars(json.data(), json.data() + json.size(), value);
    if (end == json.data() + json.size() && error == std::errc()) return value;
    if (end == json.data() + json.size() && error == std::errc::result_out_of_range) {
      // The value is outside of double's range, so it becomes zero or infinity.
      const bool tiny = json.find("e-") != json.npos || json.find("E-") != json.npos;
      const double most = tiny ? 0.0 : std::numeric_limits<double>::infinity();
      return first == '-' ? -most : most;
    }
  } else if (first == '{' || first == '[') {
    return std::nullopt;
  }
  if (json.size() >= 2 && json.front() == '"' && json.back() == '"')
    json = json.substr(1, json.size() - 2);
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Returns true for names of the writer itself, which are not series.
bool IsOwn(std::string_view name) {
  return !name.empty() && name[0] == '_' &&
         (name == "_timestamp" || name == "_runtime" || name == "_wandb" || name == "_step");
}

// Fast path for most items: a name and a value. Writers encode the name as nested, even if it is
// one word. `head`: the bytes up to the value's length.
bool ReadPlainItem(std::string_view bytes, std::string_view* head, std::string_view* name,
                   std::string_view* value) {
  constexpr unsigned char kKey = 0x0a, kNestedKey = 0x12;
  WireReader item(bytes);
  if (!(item.Byte(kKey) || item.Byte(kNestedKey)) || !item.Bytes(name) || !item.Byte(0x82) ||
      !item.Byte(0x01))
    return false;
  *head = bytes.substr(0, bytes.size() - item.left());
  return item.Bytes(value) && item.at_end();
}

}  // namespace

bool WandbRecords::ReadKeyed(std::string_view bytes, std::string_view* name,
                             std::string_view* value) {
  std::string_view head;
  if (ReadPlainItem(bytes, &head, name, value)) return true;
  WireReader item(bytes);
  uint32_t field = 0, type = 0;
  *name = *value = {};
  bool nested = false;
  while (item.Next(&field, &type)) {
    bool read = true;
    std::string_view part;
    if (type != WireReader::kBytes || (field != 1 && field != 2 && field != 16)) {
      read = item.Skip(type);
    } else if (field == 1) {
      read = item.Bytes(name);
    } else if (field == 16) {
      read = item.Bytes(value);
    } else if ((read = item.Bytes(&part))) {
      if (!nested) name_.clear();
      if (nested) name_ += '/';
      name_ += part;
      nested = true;
    }
    if (!read) return false;
  }
  if (nested) *name = name_;
  return !item.failed();
}

void WandbRecords::TakeStep(std::string_view json) {
  has_step_item_ = true;
  json = Trimmed(json);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(json.data(), json.data() + json.size(), step);
  const bool whole = error == std::errc() && end == json.data() + json.size();
  if (whole && step >= 0 && step <= kMostStep) item_step_ = step;
}

// Reads {"in": {"loss": 1}} under "d" as d/in/loss. An object with a `_type` (a histogram, an
// image) holds no series.
void WandbRecords::ReadObject(std::string_view name, std::string_view json, PointSink* sink) {
  struct Members : JsonRecord::Taker {
    void Take(std::string_view of, double value) override { numbers.emplace_back(of, value); }
    void TakeText(std::string_view of, std::string_view /*text*/) override {
      constexpr std::string_view kType = "/_type";
      if (of.ends_with(kType)) media.emplace_back(of.substr(0, of.size() + 1 - kType.size()));
    }
    std::vector<std::pair<std::string, double>> numbers;
    std::vector<std::string> media;  // prefixes of media, with a trailing slash
  } members;
  JsonCursor cursor(json);
  JsonShape shape;
  if (!object_.Read(&cursor, json, &members, &shape, name)) return;
  for (const auto& [of, value] : members.numbers) {
    const bool in_media =
        std::any_of(members.media.begin(), members.media.end(),
                    [&of = of](const std::string& media) { return of.starts_with(media); });
    if (!in_media) row_.emplace_back(ColumnOf(of, sink), value);
  }
}

bool WandbRecords::ReadKnownItem(std::string_view bytes) {
  const uint32_t next = last_ < known_.size() ? known_[last_].next : 0;
  if (next >= known_.size() || !bytes.starts_with(known_[next].head)) return false;
  const KnownItem& known = known_[next];
  WireReader rest(bytes.substr(known.head.size()));
  std::string_view value;
  if (!rest.Bytes(&value) || !rest.at_end()) return false;
  if (known.what == KnownItem::What::kNumber) {
    const std::optional<double> number = NumberOfField(value);
    if (!number) return false;
    row_.emplace_back(known.column, *number);
  } else if (known.what == KnownItem::What::kStep) {
    TakeStep(value);
  }
  last_ = next;
  return true;
}

void WandbRecords::LearnItem(std::string_view head, KnownItem::What what, uint32_t column) {
  constexpr size_t kMost = 1 << 16;
  auto found = known_by_head_.find(absl::string_view(head.data(), head.size()));
  if (found == known_by_head_.end()) {
    if (known_.size() >= kMost || column == PointSink::kNoColumn) return;
    found = known_by_head_.emplace(std::string(head), static_cast<uint32_t>(known_.size())).first;
    known_.push_back({std::string(head), what, column});
  }
  if (last_ < known_.size()) known_[last_].next = found->second;
  last_ = found->second;
}

bool WandbRecords::ReadItem(std::string_view bytes, PointSink* sink) {
  if (ReadKnownItem(bytes)) return true;
  std::string_view head, name, value;
  const bool plain = ReadPlainItem(bytes, &head, &name, &value);
  if (!plain && !ReadKeyed(bytes, &name, &value)) return false;
  const auto learn = [&](KnownItem::What what, uint32_t column) {
    if (plain) LearnItem(head, what, column);
  };
  if (name.empty() || IsOwn(name)) {
    const bool step = name == "_step";
    if (step) TakeStep(value);
    learn(step ? KnownItem::What::kStep : KnownItem::What::kNothing, 0);
    return true;
  }
  if (const std::optional<double> number = NumberOfField(value)) {
    row_.emplace_back(ColumnOf(name, sink), *number);
    learn(KnownItem::What::kNumber, row_.back().first);
  } else if (const size_t first = value.find_first_not_of(" \t\r\n");
             first != std::string_view::npos && value[first] == '{') {
    ReadObject(std::string(name), value, sink);
  }
  return true;
}

bool WandbRecords::ReadHistory(std::string_view bytes, PointSink* sink) {
  row_.clear();
  item_step_ = -1;
  has_step_item_ = false;
  std::optional<int64_t> stated;
  WireReader history(bytes);
  uint32_t field = 0, type = 0;
  while (history.Next(&field, &type)) {
    std::string_view part;
    if ((field != 1 && field != 2) || type != WireReader::kBytes) {
      if (!history.Skip(type)) return false;
      continue;
    }
    if (!history.Bytes(&part)) return false;
    if (field == 1) {
      if (!ReadItem(part, sink)) return false;
      continue;
    }
    uint64_t number = 0;  // a zero is omitted in the message
    WireReader step(part);
    while (step.Next(&field, &type)) {
      if (!(field == 1 && type == WireReader::kVarint ? step.Varint(&number) : step.Skip(type)))
        return false;
    }
    if (step.failed()) return false;
    if (static_cast<int64_t>(number) >= 0 && static_cast<int64_t>(number) <= kMostStep)
      stated = static_cast<int64_t>(number);
  }
  if (history.failed()) return false;
  if (!stated && item_step_ >= 0) stated = item_step_;
  if (!stated && has_step_item_) ++odd_steps_;
  const int64_t step = stated.value_or(next_step_);
  next_step_ = step + 1;
  any_row_ = true;
  AddRow(step, sink);
  return true;
}

uint32_t WandbRecords::ColumnOf(std::string_view name, PointSink* sink) {
  const uint32_t column = sink->Column(name);
  if (column == PointSink::kNoColumn) return column;
  if (column >= of_columns_.size()) of_columns_.resize(column + 1);
  if (of_columns_[column].empty()) of_columns_[column] = name;
  return column;
}

void WandbRecords::AddRow(int64_t step, PointSink* sink) {
  if (axes_.empty()) return sink->AddRow(step, row_);
  TakeAxes(sink);
  const bool all = declared_.size() == 1 && declared_[0].begins && declared_[0].name.empty();
  if (all) return sink->AddRow(axes_[0].newest.value_or(step), row_);
  for (const auto& [column, value] : row_) {
    if (column != PointSink::kNoColumn) sink->Add(StepOn(column, step), column, value);
  }
}

// Takes the row's values of the axes. A value whose axis is not in the row belongs to the newest
// step of the axis.
void WandbRecords::TakeAxes(PointSink* sink) {
  for (Axis& axis : axes_) {
    if (axis.column == PointSink::kNoColumn) axis.column = ColumnOf(axis.name, sink);
    for (const auto& [column, value] : row_) {
      if (column == axis.column && IsWhole(value) && value >= 0)
        axis.newest = static_cast<int64_t>(value);
    }
  }
}

// Returns the step of a column's value in the current row. A metric without an axis has the step of
// the row.
int64_t WandbRecords::StepOn(uint32_t column, int64_t step) {
  while (axis_of_columns_.size() <= column) {
    const size_t at = axis_of_columns_.size();
    axis_of_columns_.push_back(at < of_columns_.size() ? FindAxis(of_columns_[at]) : kNoAxis);
  }
  const size_t axis = axis_of_columns_[column];
  return axis == kNoAxis ? step : axes_[axis].newest.value_or(step);
}

// Returns the axis of a metric: the one that is declared for its name, or for the longest beginning
// of it. An axis is its own.
size_t WandbRecords::FindAxis(std::string_view name) const {
  size_t longest = 0, found = kNoAxis;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return i;
  }
  for (const Declared& d : declared_) {
    if (!d.begins && d.name == name) return d.axis;
    if (!d.begins || !name.starts_with(d.name) || d.name.size() + 1 <= longest) continue;
    longest = d.name.size() + 1;
    found = d.axis;
  }
  return found;
}

void WandbRecords::Declare(std::string_view name, bool begins, std::string_view axis) {
  if (declared_.size() == kMostDeclared) return;
  size_t at = 0;
  while (at < axes_.size() && axes_[at].name != axis) ++at;
  if (at == axes_.size()) axes_.push_back({std::string(axis)});
  declared_.push_back({std::string(name), begins, at});
  axis_of_columns_.clear();
}

std::vector<std::string> WandbRecords::axes() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes_) names.push_back(axis.name);
  return names;
}

// Reads define_metric("*", step_metric="train/global_step"). Does not accept an epoch as an axis,
// because an epoch has many rows.
bool WandbRecords::ReadMetric(std::string_view bytes) {
  enum MetricField : uint32_t { kName = 1, kGlob = 2, kStepMetric = 4 };
  WireReader metric(bytes);
  uint32_t field = 0, type = 0;
  std::string_view name, glob, axis;
  while (metric.Next(&field, &type)) {
    std::string_view* const text = field == kName         ? &name
                                   : field == kGlob       ? &glob
                                   : field == kStepMetric ? &axis
                                                          : nullptr;
    const bool known = text != nullptr && type == WireReader::kBytes;
    if (!(known ? metric.Bytes(text) : metric.Skip(type))) return false;
  }
  const bool step = (StepNameRank(axis) >= 0 && !IsEpochName(axis)) || IsNestedStep(axis);
  if (step && glob.ends_with('*')) {
    Declare(glob.substr(0, glob.size() - 1), true, axis);
  } else if (step && glob.empty() && !name.empty()) {
    Declare(name, false, axis);
  }
  return !metric.failed();
}

bool WandbRecords::ReadConfig(std::string_view bytes) {
  constexpr size_t kMostSettings = 4096, kMostBytes = 1024;
  WireReader config(bytes);
  uint32_t field = 0, type = 0;
  while (config.Next(&field, &type)) {
    std::string_view part, name, value;
    if (field != 1 || type != WireReader::kBytes) {
      if (!config.Skip(type)) return false;
      continue;
    }
    if (!config.Bytes(&part) || !ReadKeyed(part, &name, &value)) return false;
    value = Trimmed(value);
    const bool plain = !value.empty() && value[0] != '{' && value[0] != '[';
    if (plain && !name.starts_with("_wandb") && value.size() <= kMostBytes &&
        config_.size() < kMostSettings)
      config_[std::string(name)] = value;
  }
  return !config.failed();
}

// Statistics of the machine have only a time, so they are added to the step of the preceding row.
bool WandbRecords::ReadStats(std::string_view bytes, PointSink* sink) {
  WireReader stats(bytes);
  uint32_t field = 0, type = 0;
  const int64_t step = any_row_ ? next_step_ - 1 : next_step_;
  while (stats.Next(&field, &type)) {
    std::string_view part, name, value;
    if (field != 3 || type != WireReader::kBytes) {
      if (!stats.Skip(type)) return false;
      continue;
    }
    if (!stats.Bytes(&part) || !ReadKeyed(part, &name, &value)) return false;
    if (name.empty() || IsOwn(name)) continue;
    if (const std::optional<double> number = NumberOfField(value))
      sink->Add(step, sink->Column("system/" + std::string(name)), *number);
  }
  return !stats.failed();
}

bool WandbRecords::ReadRun(std::string_view bytes, PointSink* sink) {
  WireReader run(bytes);
  uint32_t field = 0, type = 0;
  std::string_view id, display, config;
  uint64_t starting = 0, resumed = 0;
  while (run.Next(&field, &type)) {
    const bool varint = type == WireReader::kVarint;
    const bool read = field == 1 && type == WireReader::kBytes   ? run.Bytes(&id)
                      : field == 8 && type == WireReader::kBytes ? run.Bytes(&display)
                      : field == 4 && type == WireReader::kBytes ? run.Bytes(&config)
                      : field == 14 && varint                    ? run.Varint(&starting)
                      : field == 18 && varint                    ? run.Varint(&resumed)
                                                                 : run.Skip(type);
    if (!read) return false;
  }
  if (run.failed() || !ReadConfig(config)) return false;
  if (ran_) return true;  // the record is written again when the run's settings change
  ran_ = true;
  // Adds the id, because several runs may have the same display name.
  const bool named = !display.empty() && display != id;
  sink->Belongs(named ? std::string(display) + " (" + std::string(id) + ")" : std::string(id), -1);
  if (resumed != 0) sink->Resumed();
  if (!any_row_ && static_cast<int64_t>(starting) > 0 &&
      static_cast<int64_t>(starting) <= kMostStep)
    next_step_ = static_cast<int64_t>(starting);
  return true;
}

bool WandbRecords::ReadExit(std::string_view bytes, PointSink* sink) {
  WireReader end(bytes);
  uint32_t field = 0, type = 0;
  uint64_t code = 0;
  while (end.Next(&field, &type)) {
    if (!(field == 1 && type == WireReader::kVarint ? end.Varint(&code) : end.Skip(type)))
      return false;
  }
  if (end.failed()) return false;
  sink->Ended(static_cast<int32_t>(code));
  return true;
}

bool WandbRecords::Read(std::string_view record, PointSink* sink) {
  return WireReader(record).EachBytes([&](uint32_t field, std::string_view part) {
    return field == kRecordHistory ? ReadHistory(part, sink)
           : field == kStats       ? ReadStats(part, sink)
           : field == kMetric      ? ReadMetric(part)
           : field == kConfig      ? ReadConfig(part)
           : field == kRun         ? ReadRun(part, sink)
           : field == kExit        ? ReadExit(part, sink)
                                   : true;
  });
}

}  // namespace plumbline::audit
