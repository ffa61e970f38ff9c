#include "audit/render/verdict_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "audit/render/finding_text.h"
#include "rules/engine/incidents.h"
#include "rules/words/words.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostNamed = 4;  // in a group of verdicts; the others are counted

using Groups = std::map<std::pair<std::string, std::string>, VerdictGroup>;

std::vector<VerdictGroup> ListOf(Groups groups) {
  std::vector<VerdictGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
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

// Returns "5 of 7 rules judged; not judged: health/loss-stall, drift/staleness", from the rules'
// verdicts.
std::string RuleCounts(const AuditResult& result) {
  std::map<std::string, bool> judged;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->rule().starts_with("meta/")) continue;
    judged[verdict->rule()] |= verdict->kind() != v1::Verdict::KIND_INCONCLUSIVE;
  }
  std::vector<std::string> open;
  for (const auto& [rule, any] : judged) {
    if (!any) open.push_back(rule);
  }
  std::string out = std::to_string(judged.size() - open.size()) + " of " +
                    Plural(judged.size(), "rule") + " judged";
  for (size_t i = 0; i < std::min(open.size(), kMostNamed); ++i)
    out += (i == 0 ? "; not judged: " : ", ") + open[i];
  if (open.size() > kMostNamed) out += " and " + std::to_string(open.size() - kMostNamed) + " more";
  return out;
}

// Returns true if there are series of no role, and none is a loss. Without a note, a run whose loss
// has an unknown name would look healthy.
bool LossIsMissing(const AuditResult& result) {
  bool unknown = false;
  for (const InputReport& input : result.inputs) {
    for (const SeriesSeen& series : input.series) {
      const SeriesRole role = result.roles.Of(series.name);
      if (role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
          role == SeriesRole::kAuxiliaryLoss || role == SeriesRole::kPerplexity ||
          role == SeriesRole::kLikelihood || role == SeriesRole::kReward)
        return false;
      unknown |= role == SeriesRole::kNone;
    }
  }
  return unknown;
}

// Returns ", 2 looks in 60 steps; the last one in step 31"; empty if the rule judged every step, or
// several at once.
std::string LooksText(const v1::Verdict& pass) {
  if (pass.looks() == 0 || pass.looks() >= pass.run_steps()) return "";
  return ", " + Plural(pass.looks(), "look") + " in " + Plural(pass.run_steps(), "step") +
         "; the last one in step " + std::to_string(pass.site().step_last());
}

}  // namespace

std::vector<VerdictGroup> InconclusiveGroups(const AuditResult& result) {
  Groups groups;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->kind() != v1::Verdict::KIND_INCONCLUSIVE) continue;
    const std::string id = verdict->reason().substr(0, verdict->reason().find(':'));
    VerdictGroup& group = groups[{verdict->rule(), id}];
    if (group.sites.empty()) {
      group = {verdict->rule(),
               rules::ReasonSentence(verdict->reason()),
               rules::ReasonName(verdict->reason()),
               {}};
    }
    group.sites.push_back(SiteText(verdict->site()));
  }
  return ListOf(std::move(groups));
}

std::vector<VerdictGroup> PassedGroups(const AuditResult& result) {
  Groups groups;
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->kind() != v1::Verdict::KIND_PASS) continue;
    std::string assumed;
    for (const std::string& assumption : verdict->assumptions())
      assumed += (assumed.empty() ? "assuming " : "; ") + assumption;
    VerdictGroup& group = groups[{verdict->rule(), assumed}];
    if (group.sites.empty()) group = {verdict->rule(), assumed, "", {}};
    group.sites.push_back(SiteText(verdict->site()) + LooksText(*verdict));
  }
  return ListOf(std::move(groups));
}

std::string SitesText(const std::vector<std::string>& sites) {
  std::string out;
  for (size_t i = 0; i < sites.size() && i < kMostNamed; ++i)
    out += (i == 0 ? "" : "; ") + sites[i];
  if (sites.size() > kMostNamed)
    out += "; and " + std::to_string(sites.size() - kMostNamed) + " more";
  return out;
}

std::string LeftOutText(const AuditResult& result) {
  const Selection& selection = result.selection;
  const Selection::Result chosen = selection.Of(result.report.findings());
  std::string out;
  if (selection.baseline) {
    out = Plural(chosen.known, "finding") + " not shown: known from the baseline " +
          Printable(selection.baseline->path());
  }
  if (selection.since) {
    out += (out.empty() ? "" : "; ") + Plural(chosen.before, "finding") +
           " not shown: ended before step " + std::to_string(*selection.since);
  }
  return out;
}

std::string SummaryText(const AuditResult& result) {
  const rules::Coverage& coverage = result.coverage;
  const auto findings =
      result.nothing_there ? std::vector<const v1::Finding*>() : result.findings();
  if (findings.empty() && coverage.judged == 0)
    return "0 judged, " + std::to_string(coverage.inconclusive) + " inconclusive";
  const std::string dropped =
      coverage.dropped > 0 ? "; " + std::to_string(coverage.dropped) + " dropped" : "";
  const char* const no_loss = LossIsMissing(result) ? "; no series was recognised as a loss" : "";
  return FindingCounts(findings) + "; " + RuleCounts(result) + dropped + no_loss;
}

}  // namespace plumbline::audit
