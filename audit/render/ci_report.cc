#include "audit/render/ci_report.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "audit/render/finding_text.h"
#include "audit/render/html_text.h"
#include "audit/render/text_util.h"
#include "audit/render/verdict_groups.h"
#include "rules/engine/incidents.h"
#include "rules/words/in_short.h"

namespace plumbline::audit {
namespace {

std::vector<rules::Incident> OpenIncidents(const AuditResult& result) {
  std::vector<rules::Incident> open;
  for (rules::Incident& incident : rules::IncidentsOf(result.findings())) {
    if (!incident.shown().suppressed()) open.push_back(std::move(incident));
  }
  return open;
}

// Returns an attribute's or an element's text: control characters, which XML cannot hold, are
// printed as escapes.
std::string Xml(std::string_view text) { return HtmlText(Printable(std::string(text))); }

// Returns a cell of a table: no markup, no new row.
std::string MarkdownCell(std::string_view text) {
  return absl::StrReplaceAll(HtmlText(Printable(std::string(text))), {{"\\", "\\\\"},
                                                                      {"|", "\\|"},
                                                                      {"`", "\\`"},
                                                                      {"*", "\\*"},
                                                                      {"_", "\\_"},
                                                                      {"[", "\\["},
                                                                      {"]", "\\]"},
                                                                      {"@", "&#64;"},
                                                                      {"\n", " "}});
}

// Escapes the text or a property of a workflow command.
std::string CommandText(std::string_view text) {
  return absl::StrReplaceAll(ValidUtf8(text), {{"%", "%25"}, {"\r", "%0D"}, {"\n", "%0A"}});
}
std::string CommandProperty(std::string_view text) {
  return absl::StrReplaceAll(CommandText(text), {{":", "%3A"}, {",", "%2C"}});
}

// Returns "at loss, step 61. Do first: ...".
std::string Advice(const rules::Incident& incident) {
  const v1::Finding& shown = incident.shown();
  const std::string place = PlaceText(shown);
  std::string text = place.empty() ? "" : absl::StrCat("at ", place);
  if (incident.findings.size() > 1)
    absl::StrAppend(&text, " and ", Plural(incident.findings.size() - 1, "more site"));
  if (!shown.fix().empty())
    absl::StrAppend(&text, text.empty() ? "" : ". ", "Do first: ", rules::ShortOf(shown).act);
  return text;
}

// Returns " file=train.py,line=57," for the trainer's line that first reported the site. A file
// below the current folder has its path from there, as a checkout's files have in an annotation.
std::string AtLine(const v1::FindingSite& site) {
  if (site.file().empty()) return " ";
  std::error_code error;
  std::string file = site.file();
  const std::string here = std::filesystem::current_path(error).string() + "/";
  if (!error && file.starts_with(here)) file.erase(0, here.size());
  return absl::StrCat(" file=", CommandProperty(file), ",line=", site.line(), ",");
}

struct RuleCase {
  bool judged = false;
  std::string reason;      // of an inconclusive verdict
  std::string symptom_of;  // the rule of the incident in which its finding is a line
  std::vector<const rules::Incident*> failures;
  bool Passed() const { return failures.empty() && symptom_of.empty() && judged; }
  bool Skipped() const { return failures.empty() && !Passed(); }
};

std::string CaseText(const std::string& rule, const RuleCase& one) {
  std::string out = absl::StrCat("  <testcase classname=\"plumbline\" name=\"", Xml(rule), "\"");
  if (one.Passed()) return out + "/>\n";
  out += ">\n";
  for (const rules::Incident* incident : one.failures) {
    const v1::Finding& shown = incident->shown();
    absl::StrAppend(&out, "    <failure type=\"", Xml(LevelName(shown.level())), "\" message=\"",
                    Xml(shown.title()), "\">", Xml(Advice(*incident)), "</failure>\n");
  }
  if (one.Skipped()) {
    const std::string reason =
        one.symptom_of.empty() ? one.reason : absl::StrCat("a symptom of ", one.symptom_of);
    absl::StrAppend(&out, "    <skipped message=\"", Xml(reason), "\"/>\n");
  }
  return out + "  </testcase>\n";
}

}  // namespace

std::string RenderJunit(const AuditResult& result, v1::Level fail_on) {
  std::map<std::string, RuleCase> cases;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    RuleCase& one = cases[verdict->rule()];
    const bool open = verdict->kind() == v1::Verdict::KIND_INCONCLUSIVE;
    one.judged |= !open;
    if (open && one.reason.empty()) one.reason = verdict->reason();
  }
  const std::vector<rules::Incident> incidents = OpenIncidents(result);
  size_t failed = 0, skipped = 0;
  for (const rules::Incident& incident : incidents) {
    if (incident.shown().level() < fail_on) continue;
    cases[incident.shown().rule()].failures.push_back(&incident);
    for (const rules::Incident& symptom : incident.symptoms)
      cases[symptom.shown().rule()].symptom_of = incident.shown().rule();
  }
  std::string body;
  for (const auto& [rule, one] : cases) {
    failed += one.failures.empty() ? 0 : 1;
    skipped += one.Skipped() ? 1 : 0;
    body += CaseText(rule, one);
  }
  size_t errors = 0;
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) {
      if (!problem.error) continue;
      ++errors;
      absl::StrAppend(&body, "  <testcase classname=\"plumbline\" name=\"", Xml(input.path),
                      "\">\n    <error message=\"", Xml(input.Line(problem)),
                      "\"/>\n  </testcase>\n");
    }
  }
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"plumb audit\" "
      "tests=\"",
      cases.size() + errors, "\" failures=\"", failed, "\" errors=\"", errors, "\" skipped=\"",
      skipped, "\">\n", body, "</testsuite>\n");
}

std::string RenderMarkdown(const AuditResult& result) {
  std::string out = absl::StrCat("### plumb audit\n\n", MarkdownCell(SummaryText(result)), "\n");
  const std::vector<rules::Incident> incidents = OpenIncidents(result);
  if (!incidents.empty())
    out += "\n| level | incident | rule | where and what to do |\n|---|---|---|---|\n";
  for (const rules::Incident& incident : incidents) {
    const v1::Finding& shown = incident.shown();
    std::string title = MarkdownCell(shown.title());
    for (const rules::Incident& symptom : incident.symptoms)
      absl::StrAppend(&title, "<br>also: ", MarkdownCell(symptom.shown().title()));
    absl::StrAppend(&out, "| ", std::string(LevelName(shown.level())), " | ", title, " | ",
                    MarkdownCell(shown.rule()), " | ", MarkdownCell(Advice(incident)), " |\n");
  }
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) {
      if (problem.error)
        absl::StrAppend(&out, "\nNot read: ", MarkdownCell(input.Line(problem)), "\n");
    }
  }
  return out;
}

std::string RenderGithub(const AuditResult& result) {
  std::string out;
  for (const rules::Incident& incident : OpenIncidents(result)) {
    const v1::Finding& shown = incident.shown();
    const char* const command = shown.level() == v1::LEVEL_ERROR     ? "error"
                                : shown.level() == v1::LEVEL_WARNING ? "warning"
                                                                     : "notice";
    absl::StrAppend(&out, "::", command, AtLine(shown.site()),
                    "title=", CommandProperty(shown.rule()),
                    "::", CommandText(absl::StrCat(shown.title(), " ", Advice(incident))), "\n");
  }
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) {
      if (problem.error)
        absl::StrAppend(&out, "::error file=", CommandProperty(input.path),
                        "::", CommandText(input.Line(problem)), "\n");
    }
  }
  // A line that begins with "::" would be a command.
  return absl::StrCat(out, "plumb audit: ", CommandText(SummaryText(result)), "\n");
}

}  // namespace plumbline::audit
