#include <nlohmann/json.hpp>
#include <string_view>

#include "audit/ledger/ledger_file.h"
#include "audit/ledger/whole_file.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kMostReportBytes = 256u << 20;

std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

bool IsOpen(const nlohmann::json& finding) {
  const std::string rule = TextOf(finding, "rule"), level = TextOf(finding, "level");
  const bool subject = rule.starts_with("causality/") || rule.starts_with("precision/");
  const auto suppressed = finding.find("suppressed");
  const bool known =
      suppressed != finding.end() && suppressed->is_boolean() && suppressed->get<bool>();
  return subject && (level == "warning" || level == "error") && !known;
}

}  // namespace

absl::StatusOr<std::vector<OpenFinding>> ReadOpenFindings(const std::string& path) {
  absl::StatusOr<std::string> text = WholeFile(path, kMostReportBytes);
  if (!text.ok()) return text.status();
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("no JSON object");
  if (TextOf(json, "schema") != "plumbline.report/1")
    return absl::InvalidArgumentError("a schema other than plumbline.report/1");
  const auto findings = json.find("findings");
  if (findings == json.end() || !findings->is_array())
    return absl::InvalidArgumentError("no list of findings");
  std::vector<OpenFinding> open;
  for (const auto& finding : *findings) {
    if (!finding.is_object()) return absl::InvalidArgumentError("a finding that is no object");
    if (IsOpen(finding))
      open.push_back({TextOf(finding, "rule"), TextOf(finding, "level"), TextOf(finding, "title")});
  }
  return open;
}

}  // namespace plumbline::audit
