#include "audit/session/selection.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

constexpr const char* kSchema = "plumbline.report/1";

const nlohmann::json* StringAt(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  return field != object.end() && field->is_string() ? &*field : nullptr;
}

// Reads the site of a finding. Returns false if the value is not a finding of a report.
bool SiteOf(const nlohmann::json& finding, std::tuple<std::string, std::string, std::string>* key) {
  if (!finding.is_object()) return false;
  const nlohmann::json* rule = StringAt(finding, "rule");
  const auto site = finding.find("site");
  if (rule == nullptr || site == finding.end() || !site->is_object()) return false;
  const nlohmann::json* layer = StringAt(*site, "layer");
  const nlohmann::json* op = StringAt(*site, "op");
  if (layer == nullptr || op == nullptr) return false;
  *key = {rule->get<std::string>(), layer->get<std::string>(), op->get<std::string>()};
  return true;
}

absl::Status Wrong(const std::string& path, uint64_t byte, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": byte ", byte, ": ", what));
}

// Returns true for the only finding that reports that a run was not judged.
bool StatesThatNothingWasJudged(const v1::Finding& finding) {
  return finding.rule() == "meta/probe-coverage" && finding.cause().id() == "no-verdict";
}

}  // namespace

absl::StatusOr<Baseline> Baseline::Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a readable file, found: ", std::strerror(errno)));
  }
  if (static_cast<uint64_t>(size) > kMostBytes)
    return Wrong(path, kMostBytes, "expected the end of a report, found more than 256 MiB");
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(text.data(), size))
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a readable file"));
  return Parse(text, path);
}

absl::StatusOr<Baseline> Baseline::Parse(const std::string& text, const std::string& path) {
  nlohmann::json report;
  try {
    report = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return Wrong(path, error.byte, "expected a report of plumb audit --format json, found no JSON");
  } catch (const nlohmann::json::exception&) {  // a number outside the range of double
    return Wrong(path, 0,
                 "expected a report of plumb audit --format json, found a number too large");
  }
  const nlohmann::json* schema = report.is_object() ? StringAt(report, "schema") : nullptr;
  if (schema == nullptr || *schema != kSchema) {
    return Wrong(
        path, 0,
        absl::StrCat("expected a report of plumb audit --format json (schema ", kSchema,
                     "), found ",
                     schema == nullptr ? "other JSON"
                                       : absl::StrCat("schema ", schema->get<std::string>())));
  }
  const auto findings = report.find("findings");
  if (findings == report.end() || !findings->is_array())
    return Wrong(path, 0, "expected a list of findings, found none");
  Baseline baseline;
  baseline.path_ = path;
  for (size_t i = 0; i < findings->size(); ++i) {
    std::tuple<std::string, std::string, std::string> key;
    if (!SiteOf((*findings)[i], &key)) {
      return Wrong(path, 0,
                   absl::StrCat("expected findings[", i,
                                "] with a rule and a site of layer and op, found another value"));
    }
    baseline.known_.insert(std::move(key));
  }
  return baseline;
}

bool Baseline::Knows(const v1::Finding& finding) const {
  // Compare in the form in which reports write names.
  return known_.contains({ValidUtf8(finding.rule()), ValidUtf8(finding.site().layer()),
                          ValidUtf8(finding.site().op())});
}

Selection::Result Selection::Of(const std::vector<const v1::Finding*>& findings) const {
  Result result;
  for (const v1::Finding* finding : findings) {
    const bool whole_run = finding->rule().rfind("meta/", 0) == 0;
    if (repeated.contains(finding->fingerprint())) continue;
    if (StatesThatNothingWasJudged(*finding)) {
      result.shown.push_back(finding);
    } else if (baseline && baseline->Knows(*finding)) {
      ++result.known;
    } else if (since && !whole_run && finding->site().step_last() < *since) {
      ++result.before;
    } else {
      result.shown.push_back(finding);
    }
  }
  return result;
}

}  // namespace plumbline::audit
