#include "audit/readers/comet/comet_message.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {
namespace {

using nlohmann::json;

constexpr size_t kMostCometSettings = 4096, kMostCometValue = 1024;

const json* CometMember(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string_view CometText(const json& object, const char* key) {
  const json* member = CometMember(object, key);
  if (member == nullptr || !member->is_string()) return {};
  return member->get_ref<const std::string&>();
}

// Returns the number. A word for a value that JSON cannot hold (NaN, Infinity) is a number, too.
std::optional<double> CometNumber(const json* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  return value->is_string() ? NumberOf(value->get_ref<const std::string&>()) : std::nullopt;
}

void TakeMetric(const json& metric, PointSink* sink) {
  const std::string_view name = CometText(metric, "metricName");
  const std::optional<double> value = CometNumber(CometMember(metric, "metricValue"));
  if (name.empty() || !value) return;
  const json* step = CometMember(metric, "step");
  const std::optional<double> at = CometNumber(step);
  if (!at || !IsWhole(*at)) return sink->Unplaced(1);
  sink->Add(static_cast<int64_t>(*at), sink->Column(PlainName(name)), *value);
}

void TakeParameter(const json& parameter, std::map<std::string, std::string>* settings) {
  const std::string_view name = CometText(parameter, "paramName");
  const json* value = CometMember(parameter, "paramValue");
  // Skip `curr_step` and the like, which change with every step.
  if (name.empty() || value == nullptr || CometText(parameter, "source") == "auto-logged") return;
  std::string text;
  if (value->is_string()) text = value->get_ref<const std::string&>();
  if (value->is_number() || value->is_boolean()) text = value->dump();
  if (text.empty() || text.size() > kMostCometValue || settings->size() >= kMostCometSettings)
    return;
  settings->insert_or_assign("config: " + PlainName(name), PlainName(text));
}

}  // namespace

bool CometMessages::Read(std::string_view line, PointSink* sink) {
  const json message = json::parse(line, nullptr, false);
  const json* payload = CometMember(message, "payload");
  if (payload == nullptr) return false;
  if (const json* metric = CometMember(*payload, "metric")) TakeMetric(*metric, sink);
  if (const json* parameter = CometMember(*payload, "param")) TakeParameter(*parameter, &settings_);
  if (CometText(*payload, "key") == "Name")
    sink->Belongs(PlainName(CometText(*payload, "value")), -1);
  return true;
}

bool CometMessages::Recognise(std::string_view text) {
  constexpr size_t kLines = 4;
  size_t lines = 0;
  for (; lines < kLines && text.find('\n') != std::string_view::npos; ++lines) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    const json message = json::parse(line, nullptr, false);
    const json* payload = CometMember(message, "payload");
    if (payload == nullptr || !payload->is_object() || CometText(message, "type").empty())
      return false;
  }
  return lines > 0;
}

}  // namespace plumbline::audit
