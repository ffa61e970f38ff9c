#include "audit/own_rules/own_rules.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/own_rules/rule_verdict.h"
#include "audit/own_rules/step_lines.h"
#include "base/files/whole_file.h"
#include "base/printable.h"
#include "rules/catalogue.h"

namespace plumbline::audit {
namespace {

using nlohmann::json;

constexpr size_t kMostPlaces = 1'000;    // places of the findings of one file
constexpr size_t kMostShownText = 1000;  // bytes of a message of the child

std::string FieldText(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return "";
  return Printable(found->get<std::string>().substr(0, kMostShownText));
}

// Returns the offset in bytes of a line, from 1; 0 if the file has no such line.
uint64_t OffsetOf(const std::string& path, int64_t line) {
  const absl::StatusOr<std::string> text = line > 1 ? ReadWholeFile(path) : "";
  if (!text.ok()) return 0;
  size_t offset = 0;
  for (int64_t i = 1; i < line && offset != std::string::npos; ++i) {
    offset = text->find('\n', offset);
    if (offset != std::string::npos) ++offset;
  }
  return offset == std::string::npos ? 0 : offset;
}

}  // namespace

// One rule file: its child, its rules, and their verdicts so far.
class OwnRules::File {
 public:
  File(const std::string& path, const OwnRulesOptions& options)
      : lines_([this](const std::string& op) { return Reads(op); }),
        child_(options.limits, [this](std::string_view line) { return TakeLine(line); }) {
    report_.path = path;
    report_.format = "rule-file";
    report_.named = true;
    std::error_code error;
    report_.bytes = std::filesystem::file_size(path, error);
    child_.Start({options.python, options.package + "/rules/_child.py", path},
                 {"PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8", "PLUMBLINE_DISABLE=1"});
    child_.WaitUntil([this] { return has_rules_ || failed_; });
  }

  void TakeSite(const analysis::SiteStep& step, const SeriesRoles& roles) {
    if (live()) lines_.TakeSite(step, roles);
  }
  void EndStep(const analysis::StepEnd& step) {
    if (!live()) return;
    const std::string text = lines_.EndStep(step);
    if (text.empty()) return;
    ++report_.records;
    child_.Send(text);
  }
  void EndRun(const analysis::RunSummary& run) {
    runs_.push_back(run.run);
    if (live()) child_.Send(lines_.EndRun(run));
  }

  std::vector<WatcherVerdict> Finish() {
    child_.Finish();
    if (!child_.stopped().empty() && !failed_) report_.Add(0, child_.stopped());
    std::vector<WatcherVerdict> verdicts = std::move(verdicts_);
    for (const OwnRule& rule : rules_) {
      const auto failed = failures_.find(rule.name);
      if (child_.stopped().empty() && failed == failures_.end()) continue;
      const std::string why = failed != failures_.end() ? failed->second : child_.stopped();
      for (const std::string& run : runs_)
        verdicts.push_back({run, OwnRuleId(rule.name),
                            analysis::Inconclusive("rule-stopped: the rule was stopped: " + why)});
    }
    return verdicts;
  }

  InputReport TakeReport() { return std::move(report_); }

 private:
  bool live() const { return has_rules_ && child_.stopped().empty(); }

  bool Reads(const std::string& op) const {
    return std::any_of(rules_.begin(), rules_.end(), [&](const OwnRule& rule) {
      return std::any_of(rule.reads.begin(), rule.reads.end(),
                         [&](const std::string& glob) { return rules::GlobMatch(glob, op); });
    });
  }

  // Takes a line of the child. Returns "" or why the child must be stopped.
  std::string TakeLine(std::string_view text) {
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object()) return "expected lines of JSON, found other output";
    if (line.contains("failed")) return TakeFailure(line), "";
    if (!has_rules_) return TakeHello(line);
    absl::StatusOr<WatcherVerdict> verdict = ReadOwnVerdict(line);
    if (!verdict.ok()) return std::string(verdict.status().message());
    const auto declared = [&](const OwnRule& r) { return OwnRuleId(r.name) == verdict->rule; };
    if (std::none_of(rules_.begin(), rules_.end(), declared))
      return absl::StrCat("expected a rule of the file, found ", verdict->rule);
    const v1::FindingSite& site = verdict->verdict.site();
    places_.insert({verdict->rule, verdict->run, site.layer(), site.op()});
    if (places_.size() > kMostPlaces)
      return absl::StrCat("expected findings at no more than ", kMostPlaces, " places, found more");
    verdicts_.push_back(*std::move(verdict));
    return "";
  }

  std::string TakeHello(const json& line) {
    absl::StatusOr<std::vector<OwnRule>> rules = ReadOwnRules(line);
    if (!rules.ok()) return std::string(rules.status().message());
    rules_ = *std::move(rules);
    has_rules_ = true;
    return "";
  }

  // Takes {"failed":NAME,"line":N,"text":"…"}: an exception in a rule, or in the file (NAME is "").
  void TakeFailure(const json& line) {
    const std::string rule = FieldText(line, "failed");
    const auto number = line.find("line");
    const int64_t at =
        number != line.end() && number->is_number_integer() ? number->get<int64_t>() : 0;
    std::string text = rule.empty() ? "expected rules" : "expected verdicts of " + rule;
    if (at > 0) absl::StrAppend(&text, " at line ", at);
    absl::StrAppend(&text, ", found ", FieldText(line, "text"));
    report_.Add(OffsetOf(report_.path, at), text);
    if (rule.empty()) {
      failed_ = true;
    } else {
      failures_.try_emplace(rule, text);
    }
  }

  InputReport report_;
  std::vector<OwnRule> rules_;
  bool has_rules_ = false;
  bool failed_ = false;                          // the file as a whole
  std::map<std::string, std::string> failures_;  // reasons, by rule
  std::vector<WatcherVerdict> verdicts_;
  std::set<std::tuple<std::string, std::string, std::string, std::string>> places_;
  std::vector<std::string> runs_;
  StepLines lines_;
  RuleChild child_;
};

OwnRules::OwnRules(const OwnRulesOptions& options) : roles_(options.roles) {
  for (const std::string& path : options.files)
    files_.push_back(std::make_unique<File>(path, options));
}
OwnRules::~OwnRules() = default;

void OwnRules::TakeSite(const analysis::SiteStep& step) {
  for (const auto& file : files_) file->TakeSite(step, roles_);
}
void OwnRules::EndStep(const analysis::StepEnd& step) {
  for (const auto& file : files_) file->EndStep(step);
}
void OwnRules::EndRun(const analysis::RunSummary& run) {
  for (const auto& file : files_) file->EndRun(run);
}

std::vector<WatcherVerdict> OwnRules::Finish() {
  std::vector<WatcherVerdict> verdicts;
  for (const auto& file : files_) {
    std::vector<WatcherVerdict> of = file->Finish();
    verdicts.insert(verdicts.end(), std::make_move_iterator(of.begin()),
                    std::make_move_iterator(of.end()));
  }
  return verdicts;
}

void OwnRules::TakeReports(std::deque<InputReport>* reports) {
  for (const auto& file : files_) reports->push_back(file->TakeReport());
}

}  // namespace plumbline::audit
