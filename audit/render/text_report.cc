#include "audit/render/text_report.h"

#include <set>
#include <vector>

#include "audit/render/finding_text.h"
#include "audit/render/sparkline.h"
#include "audit/render/verdict_groups.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostSparklines = 4;  // of one incident

void AppendWrapped(const TextStyle& style, size_t indent, const std::string& text,
                   std::string* out) {
  for (const std::string& line : Wrap(text, static_cast<size_t>(style.width) - indent)) {
    *out += std::string(indent, ' ') + line + "\n";
  }
}

std::string Heading(const TextStyle& style, const char* text) {
  return Inked(style, Ink::kBold, text) + "\n";
}

// The series that its findings speak of, each once.
std::string Sparklines(const AuditResult& result, const rules::Incident& incident,
                       const TextStyle& style) {
  std::string out;
  std::set<const CollectedSeries*> drawn;
  for (const v1::Finding* finding : incident.findings) {
    const CollectedSeries* series = result.series.Find(*finding);
    if (series == nullptr || !drawn.insert(series).second) continue;
    if (drawn.size() > kMostSparklines) break;
    out += SparklineText(*series, OnsetOf(*finding), style);
  }
  return out;
}

std::string Findings(const AuditResult& result, const TextStyle& style) {
  std::string out;
  for (const rules::Incident& incident : rules::IncidentsOf(result.findings())) {
    IncidentSites sites{incident.findings.size(), {}, incident.fingerprint};
    for (const v1::Finding* finding : incident.findings) {
      v1::FindingSite site = finding->site();
      site.clear_run();
      sites.named.push_back(SiteText(site));
    }
    out +=
        RenderIncident(incident.shown(), sites, style) + Sparklines(result, incident, style) + "\n";
  }
  return out;
}

std::string Inconclusive(const AuditResult& result, const TextStyle& style) {
  std::string out;
  for (const VerdictGroup& group : InconclusiveGroups(result)) {
    out += "  " + Inked(style, Ink::kCyan, Printable(group.rule)) + "\n";
    AppendWrapped(style, 4, Printable(group.words), &out);
    AppendWrapped(style, 4, "at " + SitesText(group.sites), &out);
  }
  return out.empty() ? out : Heading(style, "Inconclusive") + out + "\n";
}

std::string Passed(const AuditResult& result, const TextStyle& style) {
  std::string out, rule;
  for (const VerdictGroup& group : PassedGroups(result)) {
    if (group.rule != rule) out += "  " + Inked(style, Ink::kGreen, Printable(group.rule)) + "\n";
    rule = group.rule;
    // What a pass rests on that nobody recorded.
    if (!group.words.empty()) AppendWrapped(style, 4, Printable(group.words), &out);
    AppendWrapped(style, 4, "at " + SitesText(group.sites), &out);
  }
  return out.empty() ? out : Heading(style, "Passed") + out + "\n";
}

std::string InputProblems(const AuditResult& result, const TextStyle& style) {
  std::string out;
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) {
      const Ink ink = problem.error ? Ink::kRed : Ink::kYellow;
      out += "  " + Inked(style, ink, problem.error ? "refused" : "noted  ") + "  " +
             Printable(input.Line(problem)) + "\n";
    }
  }
  return out.empty() ? out : Heading(style, "Inputs") + out + "\n";
}

}  // namespace

std::string RenderText(const AuditResult& result, const TextStyle& style) {
  // Where nothing was judged, what is wrong with the inputs is the reason for all else.
  const bool first = result.inputs_failed() && result.coverage.judged == 0;
  const std::string left_out = LeftOutText(result);
  return (first ? InputProblems(result, style) : "") + Findings(result, style) +
         Inconclusive(result, style) + Passed(result, style) +
         (first ? "" : InputProblems(result, style)) + (left_out.empty() ? "" : left_out + "\n") +
         SummaryText(result) + "\n";
}

}  // namespace plumbline::audit
