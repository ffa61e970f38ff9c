// Field numbers are those of swanlab's record.proto, run.proto and data.proto.
#include "audit/readers/swanlab/swanlab_record.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "audit/readers/input/wire.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

enum SwanField : uint32_t { kSwanStart = 10, kSwanFinish = 11, kSwanScalar = 13 };
constexpr int64_t kMostSwanStep = int64_t{1} << 53;
constexpr int32_t kSwanFailed = 1, kSwanInterrupted = 255;

// Returns a name with the id, because several runs may have the same name.
std::string SwanRunName(std::string_view name, std::string_view id) {
  if (name.empty() || name == id) return PlainName(id);
  return PlainName(name) + (id.empty() ? "" : " (" + PlainName(id) + ")");
}

std::string_view SwanText(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

// Returns the number. A word for a value that JSON cannot hold (NaN, Infinity) is a number, too.
std::optional<double> SwanNumber(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? NumberOf(value.get_ref<const std::string&>()) : std::nullopt;
}

}  // namespace

void SwanlabRecords::Take(const Scalar& scalar, PointSink* sink) {
  constexpr std::string_view kSystem = "__swanlab__.";
  if (scalar.key.empty() || !scalar.value) return;
  // Values of the machine have their own counter, so they are added to the newest step.
  if (scalar.key.starts_with(kSystem)) {
    sink->Add(newest_, sink->Column(PlainName("system/" + scalar.key.substr(kSystem.size()))),
              *scalar.value);
    return;
  }
  if (scalar.step < 0 || scalar.step > kMostSwanStep) return sink->Unplaced(1);
  newest_ = scalar.step;
  sink->Add(scalar.step, sink->Column(PlainName(scalar.key)), *scalar.value);
}

bool SwanlabRecords::ReadScalar(std::string_view bytes, PointSink* sink) {
  Scalar scalar;
  WireReader fields(bytes);
  uint32_t field = 0, type = 0;
  while (fields.Next(&field, &type)) {
    std::string_view part;
    uint64_t step = 0;
    if (field == 2 && type == WireReader::kVarint) {
      if (!fields.Varint(&step)) return false;
      scalar.step = static_cast<int64_t>(step);
    } else if ((field == 1 || field == 5) && type == WireReader::kBytes) {
      if (!fields.Bytes(&part)) return false;
      if (field == 1) {
        scalar.key = part;
        continue;
      }
      uint64_t bits = 0;  // a zero is omitted in the message
      WireReader number(part);
      while (number.Next(&field, &type)) {
        const bool is = field == 1 && type == WireReader::kFixed64;
        if (!(is ? number.Fixed64(&bits) : number.Skip(type))) return false;
      }
      if (number.failed()) return false;
      scalar.value = std::bit_cast<double>(bits);
    } else if (!fields.Skip(type)) {
      return false;
    }
  }
  if (fields.failed()) return false;
  Take(scalar, sink);
  return true;
}

bool SwanlabRecords::ReadStart(std::string_view bytes, PointSink* sink) {
  WireReader fields(bytes);
  uint32_t field = 0, type = 0;
  std::string_view name, id;
  while (fields.Next(&field, &type)) {
    const bool text = type == WireReader::kBytes;
    const bool read = field == 4 && text    ? fields.Bytes(&name)
                      : field == 10 && text ? fields.Bytes(&id)
                                            : fields.Skip(type);
    if (!read) return false;
  }
  if (fields.failed()) return false;
  sink->Belongs(SwanRunName(name, id), -1);
  return true;
}

bool SwanlabRecords::ReadFinish(std::string_view bytes, PointSink* sink) {
  constexpr uint64_t kCrashed = 2, kAborted = 3;
  WireReader fields(bytes);
  uint32_t field = 0, type = 0;
  uint64_t state = 0;
  while (fields.Next(&field, &type)) {
    const bool is = field == 1 && type == WireReader::kVarint;
    if (!(is ? fields.Varint(&state) : fields.Skip(type))) return false;
  }
  if (fields.failed()) return false;
  sink->Ended(state == kCrashed ? kSwanFailed : state == kAborted ? kSwanInterrupted : 0);
  return true;
}

bool SwanlabRecords::Read(std::string_view record, PointSink* sink) {
  return WireReader(record).EachBytes([&](uint32_t field, std::string_view part) {
    return field == kSwanScalar   ? ReadScalar(part, sink)
           : field == kSwanStart  ? ReadStart(part, sink)
           : field == kSwanFinish ? ReadFinish(part, sink)
                                  : true;
  });
}

bool SwanlabRecords::ReadJson(std::string_view record, PointSink* sink) {
  const nlohmann::json whole = nlohmann::json::parse(record, nullptr, false);
  if (!whole.is_object()) return false;
  const auto data = whole.find("data");
  if (data == whole.end() || !data->is_object()) return false;
  const std::string_view kind = SwanText(whole, "model_type");
  if (kind == "Experiment") {
    sink->Belongs(SwanRunName(SwanText(*data, "name"), SwanText(*data, "id")), -1);
  } else if (kind == "Footer") {
    const auto success = data->find("success");
    if (success != data->end() && success->is_boolean())
      sink->Ended(success->get<bool>() ? 0 : kSwanFailed);
  } else if (kind == "Scalar") {
    const auto metric = data->find("metric"), step = data->find("step");
    if (metric == data->end() || !metric->is_object() || !metric->contains("data")) return false;
    Scalar scalar;
    scalar.key = SwanText(*data, "key");
    scalar.step = step != data->end() && step->is_number_integer() ? step->get<int64_t>() : -1;
    scalar.value = SwanNumber((*metric)["data"]);
    Take(scalar, sink);
  }
  return true;
}

}  // namespace plumbline::audit
