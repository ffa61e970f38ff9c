#include "audit/render/text_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "audit/render/finding_text.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostSites = 4;  // named in a group of verdicts; the rest is counted

constexpr size_t kMostReasons = 3;  // said one by one; more of them are counted in one line

// Verdicts of one rule that say the same, over sites and steps.
struct Group {
  std::string reason;  // of the first
  std::vector<std::string> sites;
};
using Groups = std::map<std::pair<std::string, std::string>, Group>;  // by (rule, reason's id)

void AppendWrapped(const TextStyle& style, size_t indent, const std::string& text,
                   std::string* out) {
  for (const std::string& line : Wrap(text, static_cast<size_t>(style.width) - indent)) {
    *out += std::string(indent, ' ') + line + "\n";
  }
}

std::string Heading(const TextStyle& style, const char* text) {
  return Inked(style, Ink::kBold, text) + "\n";
}

std::string SitesText(const std::vector<std::string>& sites) {
  std::string out;
  for (size_t i = 0; i < sites.size() && i < kMostSites; ++i)
    out += (i == 0 ? "" : "; ") + sites[i];
  if (sites.size() > kMostSites)
    out += "; and " + std::to_string(sites.size() - kMostSites) + " more";
  return out;
}

std::string Findings(const AuditResult& result, const TextStyle& style) {
  std::string out;
  for (const rules::Incident& incident : rules::IncidentsOf(result.report.findings())) {
    IncidentSites sites{incident.findings.size(), {}, incident.fingerprint};
    for (const v1::Finding* finding : incident.findings) {
      v1::FindingSite site = finding->site();
      site.clear_run();
      sites.named.push_back(SiteText(site));
    }
    out += RenderIncident(incident.shown(), sites, style) + "\n";
  }
  return out;
}

// How many for which reason, the most frequent first.
std::string Counted(const Groups& groups) {
  std::map<std::string, size_t> by_reason;
  size_t all = 0;
  for (const auto& [key, group] : groups) {
    by_reason[key.second] += group.sites.size();
    all += group.sites.size();
  }
  std::vector<std::pair<std::string, size_t>> reasons(by_reason.begin(), by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = std::to_string(all) + " inconclusive: ";
  for (size_t i = 0; i < reasons.size(); ++i)
    out += (i == 0 ? "" : ", ") + reasons[i].first + " " + std::to_string(reasons[i].second);
  return out + "; --format json says of each where and why";
}

// Where something was judged, and the reasons are many, they are counted: what could not be judged
// is no news then.
std::string Inconclusive(const AuditResult& result, const TextStyle& style) {
  Groups groups;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->kind() != v1::Verdict::KIND_INCONCLUSIVE) continue;
    const std::string id = verdict->reason().substr(0, verdict->reason().find(':'));
    Group& group = groups[{verdict->rule(), id}];
    if (group.sites.empty()) group.reason = verdict->reason();
    group.sites.push_back(SiteText(verdict->site()));
  }
  if (groups.empty()) return "";
  std::string out = Heading(style, "Inconclusive");
  if (groups.size() > kMostReasons && result.coverage.judged > 0) {
    AppendWrapped(style, 2, Printable(Counted(groups)), &out);
    return out + "\n";
  }
  for (const auto& [key, group] : groups) {
    out += "  " + Inked(style, Ink::kCyan, Printable(key.first)) + "\n";
    AppendWrapped(style, 4, Printable(group.reason), &out);
    AppendWrapped(style, 4, "at " + SitesText(group.sites), &out);
  }
  return out + "\n";
}

std::string Passed(const AuditResult& result, const TextStyle& style) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> sites;  // rule, assumed
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->kind() != v1::Verdict::KIND_PASS) continue;
    std::string assumed;
    for (const std::string& assumption : verdict->assumptions())
      assumed += (assumed.empty() ? "assuming " : "; ") + assumption;
    sites[verdict->rule()][assumed].push_back(SiteText(verdict->site()));
  }
  if (sites.empty()) return "";
  std::string out = Heading(style, "Passed");
  for (const auto& [rule, lists] : sites) {
    out += "  " + Inked(style, Ink::kGreen, Printable(rule)) + "\n";
    for (const auto& [assumed, list] : lists) {
      // What a pass rests on that nobody recorded.
      if (!assumed.empty()) AppendWrapped(style, 4, Printable(assumed), &out);
      AppendWrapped(style, 4, "at " + SitesText(list), &out);
    }
  }
  return out + "\n";
}

// What was taken for what: "loss: train/loss, lm loss".
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
    AppendWrapped(style, 2,
                  "of no role: " + Printable(SitesText({none->second.begin(), none->second.end()})),
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
  for (const std::string& note : result.notes)
    out += "  " + Inked(style, Ink::kYellow, "noted  ") + "  " + Printable(note) + "\n";
  return out.empty() ? out : Heading(style, "Inputs") + out + "\n";
}

std::string FindingCounts(const std::vector<const v1::Finding*>& findings) {
  std::map<v1::Level, uint64_t, std::greater<>> by_level;
  uint64_t suppressed = 0;
  for (const v1::Finding* finding : findings) {
    finding->suppressed() ? ++suppressed : ++by_level[finding->level()];
  }
  std::string out = Plural(findings.size() - suppressed, "finding");
  for (auto level = by_level.begin(); level != by_level.end(); ++level) {
    out +=
        (level == by_level.begin() ? " (" : ", ") + Plural(level->second, LevelName(level->first));
  }
  if (!by_level.empty()) out += ")";
  const size_t incidents = rules::IncidentsOf(findings).size();
  if (incidents < findings.size()) out += " in " + Plural(incidents, "incident");
  return suppressed == 0 ? out : out + ", " + std::to_string(suppressed) + " suppressed";
}

std::string LastLine(const AuditResult& result) {
  const rules::Coverage& coverage = result.coverage;
  const auto findings =
      result.nothing_there ? std::vector<const v1::Finding*>() : result.report.findings();
  const std::string inconclusive = std::to_string(coverage.inconclusive) + " inconclusive";
  if (findings.empty() && coverage.judged == 0) return "0 judged, " + inconclusive;
  return FindingCounts(findings) + ", " + std::to_string(coverage.judged) + " judged, " +
         inconclusive + ", " + std::to_string(coverage.dropped) + " dropped";
}

}  // namespace

std::string RenderText(const AuditResult& result, const TextStyle& style) {
  // Where nothing was judged, what is wrong with the inputs is the reason for all else.
  const bool first = result.inputs_failed() && result.coverage.judged == 0;
  return (first ? InputProblems(result, style) : "") +
         (result.nothing_there ? "" : Findings(result, style)) + Passed(result, style) +
         Inconclusive(result, style) + SeriesRead(result, style) +
         (first ? "" : InputProblems(result, style)) + LastLine(result) + "\n";
}

}  // namespace plumbline::audit
