// Tools that need no server.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/mcp/arguments.h"
#include "audit/mcp/fit.h"
#include "audit/mcp/tools.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "audit/render/rule_text.h"
#include "audit/render/verdict_groups.h"
#include "audit/session/audit.h"
#include "base/clock.h"
#include "rules/catalogue.h"
#include "rules/engine/incidents.h"
#include "rules/words/hide_ids.h"

namespace plumbline::audit::mcp {
namespace {

namespace fs = std::filesystem;

// Larger inputs need plumb audit, which shows progress and can be stopped.
constexpr size_t kMostFiles = 10'000;
constexpr uint64_t kMostFileBytes = uint64_t{32} << 30;
constexpr size_t kMostInputs = 50, kMostGroups = 50, kMostIncidentsShown = 100;
constexpr int64_t kFindingsUnlessReported = 20;

constexpr const char* kExplainRuleIn = R"({"type": "object", "properties": {
  "rule": {"type": "string", "maxLength": 256, "description": "its id, or the name alone"}},
  "required": ["rule"], "additionalProperties": false})";
constexpr const char* kExplainRuleOut = R"({"type": "object", "properties": {
  "id": {"type": "string"}, "status": {"type": "string", "enum": ["built", "planned"]},
  "level": {"type": "string"}, "title": {"type": "string"},
  "page": {"type": "string", "description": "Markdown"}},
  "required": ["id", "status", "level", "title", "page"]})";

constexpr const char* kAuditPathIn = R"({"type": "object", "properties": {
  "path": {"type": "string", "maxLength": 4096,
    "description": "a file, or a directory that is audited as one run, on this machine"},
  "rules": {"type": "array", "items": {"type": "string", "maxLength": 256}, "maxItems": 64,
    "description": "globs over rule ids; all rules unless given"},
  "max_findings": {"type": "integer", "minimum": 1, "maximum": 200, "description": "20 unless given"},
  "raw_ids": {"type": "boolean", "description": "names token and sequence ids; false unless given"}},
  "required": ["path"], "additionalProperties": false})";
constexpr const char* kAuditPathOut = R"({"type": "object", "properties": {
  "summary": {"type": "string"},
  "coverage": {"type": "object", "properties": {"judged": {"type": "integer"},
    "inconclusive": {"type": "integer"}, "dropped": {"type": "integer"}},
    "required": ["judged", "inconclusive", "dropped"]},
  "inputs": {"type": "array", "items": {"type": "object"}}, "inputs_omitted": {"type": "integer"},
  "incidents": {"type": "array", "items": {"type": "object"}}, "incidents_omitted": {"type": "integer"},
  "inconclusive": {"type": "array", "items": {"type": "object"}}, "inconclusive_omitted": {"type": "integer"},
  "findings": {"type": "array", "description": "worst first", "items": {"type": "object"}},
  "findings_omitted": {"type": "integer"}},
  "required": ["summary", "coverage", "inputs", "incidents", "inconclusive", "findings", "findings_omitted"]})";

// Returns "group/name" for "name", if only one rule has that name.
std::string FullId(const std::string& rule) {
  if (rule.find('/') != std::string::npos) return rule;
  std::string found;
  const auto consider = [&](std::string_view id) {
    if (id.substr(id.find('/') + 1) != rule) return;
    found = found.empty() ? std::string(id) : rule;  // a second rule has the name, so return
                                                     // neither
  };
  for (const rules::CatalogueEntry& entry : rules::Catalogue()) consider(entry.info->id);
  for (const rules::PlannedRule& planned : rules::PlannedRules()) consider(planned.id);
  return found.empty() ? rule : found;
}

Json RuleObject(const char* id, const char* status, v1::Level level, const char* title,
                const std::string& page) {
  Json value;
  value["id"] = id;
  value["status"] = status;
  value["level"] = LevelName(level);
  value["title"] = title;
  value["page"] = page;
  return value;
}

// Returns true for file systems whose files the kernel generates (proc, sysfs): some of them never
// end.
bool IsKernels(const std::string& path) {
  struct statfs about {};
  if (statfs(path.c_str(), &about) != 0) return false;
  const auto type = static_cast<uint64_t>(about.f_type);
  return type == PROC_SUPER_MAGIC || type == SYSFS_MAGIC || type == DEBUGFS_MAGIC ||
         type == TRACEFS_MAGIC;
}

// Checks that the path can be audited here. Rejects devices and pipes, which might never end, and
// trees so large that the client would wait too long.
absl::Status CheckPath(const std::string& path) {
  std::error_code error;
  if (IsKernels(path))
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a recorded file"));
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) {
    if (fs::file_size(path, error) <= kMostFileBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError("expected at most 32 GiB; plumb audit reads more");
  }
  if (!fs::is_directory(status))
    return absl::NotFoundError(absl::StrCat(path, ": expected a file or a directory, found none"));
  size_t files = 0;
  uint64_t bytes = 0;
  fs::recursive_directory_iterator entry(path, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (++files > kMostFiles)
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": expected at most ", kMostFiles, " files; plumb audit reads more"));
    if (!entry->is_regular_file(ignored)) continue;
    const uint64_t size = entry->file_size(ignored);
    bytes += ignored ? 0 : size;
    if (bytes > kMostFileBytes)
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": expected at most 32 GiB; plumb audit reads more"));
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat(path, ": expected a readable directory, found: ", error.message()));
  }
  return absl::OkStatus();
}

// Returns true for formats that may hold token ids, sequence ids or texts. "unknown" is a file that
// no reader accepts.
bool HoldsIds(std::string_view format) {
  return format == "unknown" || format == "rollout-jsonl" || format == "prime-rl" ||
         format == "nemo-rl" || format == "jsonl";
}

// Returns `problem` without the value that was found in the file.
std::string WithoutFound(std::string problem) {
  for (const std::string_view before : {"the first line with a number is ", ", found "}) {
    if (const size_t at = problem.find(before); at != std::string::npos) {
      problem.resize(at + before.size());
      return problem + "(hidden; raw_ids shows it)";
    }
  }
  return problem;
}

Json InputValue(const InputReport& input, bool raw_ids) {
  Json value;
  value["path"] = ValidUtf8(input.path);
  value["format"] = ValidUtf8(input.format);
  value["bytes"] = input.bytes;
  value["records"] = input.records;
  value["problems"] = Json::array();
  const bool hide = !raw_ids && HoldsIds(input.format);
  for (const Problem& problem : input.problems) {
    const std::string line = input.Line(problem);
    value["problems"].push_back(ValidUtf8(hide ? WithoutFound(line) : line));
  }
  for (const std::string& note : input.notes) value["notes"].push_back(ValidUtf8(note));
  return value;
}

Json IncidentValue(const rules::Incident& incident) {
  Json value;
  value["rule"] = ValidUtf8(incident.shown().rule());
  value["level"] = LevelName(incident.shown().level());
  value["title"] = ValidUtf8(incident.shown().title());
  value["sites"] = incident.findings.size();
  value["fingerprint"] = incident.fingerprint;
  value["finding"] = ValidUtf8(incident.shown().fingerprint());
  for (const rules::Incident& symptom : incident.symptoms)
    value["symptoms"].push_back(IncidentValue(symptom));
  return value;
}

Json AuditValue(const AuditResult& result, int64_t max_findings, bool raw_ids) {
  Json answer;
  answer["summary"] = SummaryText(result);
  answer["coverage"] = {{"judged", result.coverage.judged},
                        {"inconclusive", result.coverage.inconclusive},
                        {"dropped", result.coverage.dropped}};
  const std::vector<const v1::Finding*> findings = result.findings();
  answer["inputs"] = Json::array();
  for (const InputReport& input : result.inputs)
    answer["inputs"].push_back(InputValue(input, raw_ids));
  FitList("inputs", "inputs_omitted", kMostInputs, &answer);
  answer["incidents"] = Json::array();
  for (const rules::Incident& incident : rules::IncidentsOf(findings))
    answer["incidents"].push_back(IncidentValue(incident));
  FitList("incidents", "incidents_omitted", kMostIncidentsShown, &answer);
  answer["inconclusive"] = Json::array();
  for (const VerdictGroup& group : InconclusiveGroups(result)) {
    answer["inconclusive"].push_back(
        {{"rule", ValidUtf8(group.rule)},
         {"reason",
          ValidUtf8(raw_ids ? group.words : rules::ReasonWithoutIds(group.rule, group.words))},
         {"sites", group.sites.size()}});
  }
  FitList("inconclusive", "inconclusive_omitted", kMostGroups, &answer);
  answer["findings"] = Json::array();
  for (const v1::Finding* finding : findings)
    answer["findings"].push_back(FindingValue(raw_ids ? *finding : rules::WithoutIds(*finding)));
  FitList("findings", "findings_omitted", static_cast<size_t>(max_findings), &answer);
  return answer;
}

absl::StatusOr<Json> AuditPath(const Json& arguments, const OnProgress& on_progress) {
  const std::string path = TextArgument(arguments, "path");
  if (absl::Status status = CheckPath(path); !status.ok()) return status;
  AuditOptions options;
  options.paths = {path};
  options.engine.today = rules::DayOf(static_cast<int64_t>(UnixNs()));
  for (const Json& glob : arguments.value("rules", Json::array()))
    options.engine.rules.push_back(glob.get<std::string>());
  const absl::StatusOr<AuditResult> result =
      RunAudit(options, [&on_progress](const AuditProgress& progress) {
        on_progress(static_cast<double>(progress.bytes_done), static_cast<double>(progress.bytes));
      });
  if (!result.ok()) return result.status();
  return AuditValue(*result, NumberArgument(arguments, "max_findings", kFindingsUnlessReported),
                    FlagArgument(arguments, "raw_ids", false));
}

}  // namespace

absl::StatusOr<Json> RuleValue(const std::string& rule) {
  const std::string id = FullId(rule);
  if (const rules::CatalogueEntry* entry = rules::FindRule(id)) {
    const rules::RuleInfo& info = *entry->info;
    return RuleObject(info.id, "built", info.level, info.title, RulePage(info));
  }
  if (const rules::PlannedRule* planned = rules::FindPlannedRule(id)) {
    return RuleObject(planned->id, "planned", planned->level, planned->title,
                      PlannedPage(*planned));
  }
  const std::string near(rules::NearestRule(rule));
  return absl::NotFoundError(
      near.empty() ? "expected the id of a rule; resources/list lists them"
                   : absl::StrCat("expected the id of a rule; did you mean ", near, "?"));
}

std::vector<Tool> LocalTools() {
  return {
      {"explain_rule", "A rule's page",
       "What a rule checks, why, an example that fails, how to fix it, what it cannot detect",
       kExplainRuleIn, kExplainRuleOut,
       [](const Json& arguments, const OnProgress&) {
         return RuleValue(TextArgument(arguments, "rule"));
       }},
      {"audit_path", "Audit of a path",
       "Judges a recorded run, dump or log on this machine, as plumb audit does, and returns its "
       "findings. Read-only.",
       kAuditPathIn, kAuditPathOut, AuditPath},
  };
}

}  // namespace plumbline::audit::mcp
