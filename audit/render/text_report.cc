#include "audit/render/text_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "audit/render/bottleneck.h"
#include "audit/render/finding_text.h"
#include "audit/render/nothing_judged.h"
#include "audit/render/sparkline.h"
#include "audit/render/verdict_groups.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostSparklines = 4;  // per incident
constexpr size_t kMostReasons = 3;     // listed one by one; more are counted in one line

void AppendWrapped(const TextStyle& style, size_t indent, const std::string& text,
                   std::string* out) {
  for (const std::string& line : Wrap(text, static_cast<size_t>(style.width) - indent)) {
    *out += std::string(indent, ' ') + line + "\n";
  }
}

std::string Heading(const TextStyle& style, const char* text) {
  return Inked(style, Ink::kBold, text) + "\n";
}

// Plots the series of an incident's findings, each once.
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
    for (const rules::Incident& symptom : incident.symptoms)
      sites.symptoms.push_back(SymptomText(symptom.shown()));
    out +=
        RenderIncident(incident.shown(), sites, style) + Sparklines(result, incident, style) + "\n";
  }
  return out;
}

// Counts the sites of each reason, the most frequent first. A reason is named by its code, as
// words.
std::string Counted(const std::vector<VerdictGroup>& groups, uint64_t verdicts) {
  std::map<std::string, size_t> by_reason;
  size_t all = 0;
  for (const VerdictGroup& group : groups) {
    by_reason[group.reason] += group.sites.size();
    all += group.sites.size();
  }
  // Verdicts of one site in several steps are one place.
  std::vector<std::pair<std::string, size_t>> reasons(by_reason.begin(), by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = Plural(verdicts, "verdict is", "verdicts are") + " inconclusive" +
                    (all == verdicts ? "" : ", at " + Plural(all, "place")) + ": ";
  for (size_t i = 0; i < reasons.size(); ++i)
    out += (i == 0 ? "" : ", ") + reasons[i].first + " (" + std::to_string(reasons[i].second) + ")";
  return out + ". --format json lists each with its site and reason.";
}

// If something was judged and there are many reasons, counts them, because they are less important
// then.
std::string Inconclusive(const AuditResult& result, const TextStyle& style) {
  const std::vector<VerdictGroup> groups = InconclusiveGroups(result);
  if (groups.size() > kMostReasons && result.coverage.judged > 0) {
    std::string out = Heading(style, "Inconclusive");
    AppendWrapped(style, 2, Printable(Counted(groups, result.coverage.inconclusive)), &out);
    return out + "\n";
  }
  std::string out;
  for (const VerdictGroup& group : groups) {
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
    // Show the unrecorded assumptions of a pass.
    if (!group.words.empty()) AppendWrapped(style, 4, Printable(group.words), &out);
    AppendWrapped(style, 4, "at " + SitesText(group.sites), &out);
  }
  return out.empty() ? out : Heading(style, "Passed") + out + "\n";
}

// Returns the last line of a report over time: the largest bottleneck, and the next one.
std::string BottleneckText(const AuditResult& result) {
  const std::string line = BottleneckLineOf(result);
  return line.empty() ? "" : line + "\n";
}

// Lists the role of each series: "loss: train/loss, lm loss".
std::string SeriesRead(const AuditResult& result, const TextStyle& style) {
  std::map<SeriesRole, std::set<std::string>> names;
  for (const InputReport& input : result.inputs) {
    for (const SeriesSeen& series : input.series)
      names[result.roles.Of(series.name)].insert(series.name);
  }
  if (names.empty()) return "";
  std::string out = Heading(style, "Series");
  for (const auto& [role, list] : names) {
    if (role == SeriesRole::kNone) continue;
    AppendWrapped(
        style, 2,
        std::string(NameOf(role)) + ": " + Printable(SitesText({list.begin(), list.end()})), &out);
  }
  if (const auto none = names.find(SeriesRole::kNone); none != names.end()) {
    AppendWrapped(
        style, 2,
        "without a role: " + Printable(SitesText({none->second.begin(), none->second.end()})),
        &out);
  }
  return out + "\n";
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
  // Print a problem that several files share once.
  std::map<std::string, std::pair<std::string, size_t>> stated;  // first file, files
  for (const InputReport& input : result.inputs) {
    for (const std::string& note : input.notes) {
      auto& [path, files] = stated[note];
      if (files++ == 0) path = input.path;
    }
  }
  for (const auto& [note, where] : stated) {
    const std::string more =
        where.second > 1 ? " (and " + std::to_string(where.second - 1) + " more)" : "";
    out += "  noted    " + Printable(where.first + more + ": " + note) + "\n";
  }
  for (const std::string& note : result.notes)
    out += "  " + Inked(style, Ink::kYellow, "noted  ") + "  " + Printable(note) + "\n";
  return out.empty() ? out : Heading(style, "Inputs") + out + "\n";
}

}  // namespace

std::string RenderText(const AuditResult& result, const TextStyle& style) {
  // Without a verdict, only the reason is reported.
  if (!result.judged_any && !result.nothing_there) {
    return SeriesRead(result, style) + InputProblems(result, style) +
           Printable(WhyNothingWasJudged(result)) + "\n";
  }
  const std::string left_out = LeftOutText(result);
  const bool more = !style.verbose && !result.nothing_there && !result.findings().empty();
  return (style.verbose ? Passed(result, style) : "") + SeriesRead(result, style) +
         InputProblems(result, style) + Inconclusive(result, style) +
         (result.nothing_there ? "" : Findings(result, style)) +
         (more ? "-v prints each finding in full; plumb explain RULE prints the page of a rule.\n"
               : "") +
         (left_out.empty() ? "" : left_out + "\n") + BottleneckText(result) + SummaryText(result) +
         "\n";
}

}  // namespace plumbline::audit
