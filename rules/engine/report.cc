#include "rules/engine/report.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/processes.h"
#include "rules/analysis_names.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

// Returns the reason id: inconclusive reasons read "short-id: sentence with numbers", and equal ids
// are merged.
std::string ReasonId(const v1::Verdict& verdict) {
  if (verdict.kind() != v1::Verdict::KIND_INCONCLUSIVE) return "";
  return verdict.reason().substr(0, verdict.reason().find(':'));
}

void Widen(const v1::FindingSite& from, v1::FindingSite& site) {
  site.set_step_first(std::min(site.step_first(), from.step_first()));
  site.set_step_last(std::max(site.step_last(), from.step_last()));
  std::vector<uint32_t> ranks(site.ranks().begin(), site.ranks().end());
  ranks.insert(ranks.end(), from.ranks().begin(), from.ranks().end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  site.mutable_ranks()->Assign(ranks.begin(), ranks.end());
}

// Compares the weight of two findings, without their causes.
int Compare(const v1::Finding& a, const v1::Finding& b) {
  const auto of_a = std::make_pair(a.level(), a.strength());
  const auto of_b = std::make_pair(b.level(), b.strength());
  return of_a < of_b ? -1 : of_a > of_b ? 1 : 0;
}

double Confidence(const v1::Finding& finding) {
  const double c = finding.cause().confidence();
  return std::isfinite(c) ? c : 0;
}

// Returns true if the finding has a kind that may change: rules on a run's health report one kind
// while an event lasts, and another kind once they have more data. For example, a loss that
// diverged recovers, or a jump of an evaluation was overfitting. So does the rule on memory growth.
bool HasKind(const v1::Finding& finding) {
  return (finding.rule().starts_with("health/") || finding.rule() == "performance/memory-creep") &&
         finding.details().fields().contains("kind");
}

// Returns how much of the run a finding of group drift covers. Each of its verdicts states the
// worst and the newest look over all steps so far, so the newest verdict replaces the others.
// Returns 0 for other findings.
double Covered(const v1::Finding& finding) {
  if (!finding.rule().starts_with("drift/")) return 0;
  const auto& fields = finding.details().fields();
  const auto found = fields.find("steps_judged");
  return found == fields.end() ? 0 : found->second.number_value();
}

// Returns the number of steps from the first to the last.
uint64_t StepsOf(int64_t first, int64_t last) {
  return static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
}

// Counts a step that was judged by itself. A rule may have counted them (StepLooks). Call before
// the line is widened.
void CountLook(const v1::Verdict& pass, bool fresh, v1::Verdict* line) {
  const v1::FindingSite& site = pass.site();
  const bool single = site.step_first() == site.step_last();
  if (pass.rule() == kRunDiedRule || pass.rule().starts_with("meta/")) {
    line->set_looks(0);  // about the run as a whole
  } else if (pass.looks() > 0) {
    line->set_looks(std::max(pass.looks(), line->looks()));
  } else if (fresh || !single) {
    line->set_looks(fresh && single ? 1 : 0);
  } else if (line->looks() > 0 && site.step_first() > line->site().step_last()) {
    line->set_looks(line->looks() + 1);
  }
}

// Returns the largest distance from the last look to the next one that its schedule allows: the
// mean distance; as many steps as the run had until then if each doubling of the steps had one look
// or two, or if the number of looks is not known (0).
uint64_t NextLookWithin(const v1::Verdict& pass, int64_t run_first) {
  const v1::FindingSite& site = pass.site();
  const uint64_t until = StepsOf(run_first, site.step_last()) - 1;
  if (pass.looks() <= 1) return until;
  const uint64_t span = StepsOf(site.step_first(), site.step_last()) - 1;
  const double doublings = std::log2(static_cast<double>(span) + 1);
  const auto looks = static_cast<double>(pass.looks());
  const bool doubling = looks >= doublings - 1 && looks <= 2 * doublings + 4;
  return doubling ? until : span / (pass.looks() - 1);
}

// Returns the last step in which a look at the site could be expected. If the processes state that
// the next measurement is due after the run, none is missing since the last one. Values of series
// come with each step.
int64_t ExpectedUntil(const analysis::RunSummary& run, const v1::FindingSite& site) {
  const auto known = run.sites.find({site.layer(), site.op()});
  const bool series = known != run.sites.end() && known->second.kind == "scalar";
  if (series || run.next_look <= run.step_last || run.last_look < 0) return run.step_last;
  return run.last_look;
}

// Returns true if the steps after the last look are a tenth of the run or more, and another look
// was due in them.
bool IsOverdue(const v1::Verdict& pass, int64_t run_first, int64_t run_last) {
  const CatalogueEntry* const rule = FindRule(pass.rule());
  const bool decided = rule != nullptr && rule->info->decides_early;
  const v1::FindingSite& site = pass.site();
  const uint64_t points = std::max(pass.looks(), StepsOf(site.step_first(), site.step_last()));
  if ((decided && points >= RuleInfo::kSeriesDecides) || site.step_last() >= run_last) return false;
  const uint64_t since = StepsOf(site.step_last(), run_last) - 1;
  const uint64_t tenth = pass.run_steps() / 10;
  return tenth > 0 && since >= tenth && since > NextLookWithin(pass, run_first);
}

std::pair<int64_t, uint32_t> PlaceOf(const v1::FindingSite& site) {
  const auto first = std::min_element(site.ranks().begin(), site.ranks().end());
  return {site.step_first(), first == site.ranks().end() ? 0 : *first};
}

}  // namespace

Report::Change Report::Add(const v1::Verdict& verdict) {
  const v1::FindingSite& site = verdict.site();
  decltype(verdicts_)::key_type key = {verdict.rule(), site.run(),     site.layer(),
                                       site.op(),      verdict.kind(), ReasonId(verdict)};
  if (Full(verdict) && !verdicts_.contains(key)) {
    ++left_out_;
    return {};
  }
  auto [line, fresh] = verdicts_.try_emplace(std::move(key), verdict);
  if (fresh) {
    line->second.clear_finding();
    fresh = !Continues(line->first, &line->second);
  }
  if (verdict.kind() == v1::Verdict::KIND_PASS) CountLook(verdict, fresh, &line->second);
  if (!fresh) Widen(site, *line->second.mutable_site());
  if (verdict.kind() != v1::Verdict::KIND_FINDING) return {};

  Entry& entry = findings_[verdict.finding().fingerprint()];
  const double lost = entry.finding.lost_rank_seconds() + verdict.finding().lost_rank_seconds();
  Change change;
  change.opened = entry.count == 0;
  bool reported = change.opened;  // the text shown changed
  if (change.opened) {
    entry.finding = verdict.finding();
    entry.place = PlaceOf(site);
  } else {
    v1::FindingSite whole = entry.finding.site();
    Widen(site, whole);
    const std::string cause = entry.finding.cause().id();
    const auto before = std::make_pair(entry.finding.level(), entry.finding.strength());
    if (HasKind(verdict.finding())) reported = entry.Forget(site.step_first());
    const double covered = Covered(verdict.finding());
    const bool newest = covered > 0 && covered >= Covered(entry.finding);
    if (newest) {
      entry.others.clear();
      entry.gone = reported = true;
      whole.set_step_last(site.step_last());
    }
    const int compared = entry.gone    ? 1
                         : covered > 0 ? -1
                                       : Compare(verdict.finding(), entry.finding);
    if (compared >= 0) reported |= entry.Take(verdict.finding(), PlaceOf(site));
    change.stronger = std::make_pair(entry.finding.level(), entry.finding.strength()) > before;
    change.refined = entry.finding.cause().id() != cause;
    // The merged finding is suppressed only while all its verdicts are.
    entry.finding.set_suppressed(entry.suppressed && verdict.finding().suppressed());
    *entry.finding.mutable_site() = whole;
  }
  entry.finding.set_lost_rank_seconds(lost);
  if (reported) *line->second.mutable_details() = entry.finding.details();
  change.unsuppressed = entry.suppressed && !entry.finding.suppressed();
  entry.suppressed = entry.finding.suppressed();
  change.count = ++entry.count;
  change.finding = &entry.finding;
  return change;
}

// An inconclusive line kNotLookedAtSince replaces the pass of its site, and a later pass replaces
// that line. Returns true if the new `line` is a pass that took over the steps of the former one.
bool Report::Continues(const Lines::key_type& key, v1::Verdict* line) {
  Lines::key_type other = key;
  if (line->kind() == v1::Verdict::KIND_PASS) {
    std::get<4>(other) = v1::Verdict::KIND_INCONCLUSIVE;
    std::get<5>(other) = kNotLookedAtSince;
  } else if (std::get<5>(key) == kNotLookedAtSince) {
    std::get<4>(other) = v1::Verdict::KIND_PASS;
    std::get<5>(other) = "";
  } else {
    return false;
  }
  const auto former = verdicts_.extract(other);
  if (former.empty() || line->kind() != v1::Verdict::KIND_PASS) return false;
  *line->mutable_site() = former.mapped().site();
  line->set_looks(former.mapped().looks());
  return true;
}

std::vector<v1::Verdict> Report::NotLookedAtSince(const analysis::RunSummary& run) {
  std::vector<v1::Verdict> out;
  for (auto& [key, line] : verdicts_) {
    const v1::FindingSite& site = line.site();
    if (line.kind() != v1::Verdict::KIND_PASS || site.run() != run.run) continue;
    line.set_run_steps(StepsOf(run.step_first, run.step_last));
    if (line.rule().starts_with("meta/") || line.rule() == kRunDiedRule ||
        !IsOverdue(line, run.step_first, ExpectedUntil(run, site)))
      continue;
    v1::Verdict& verdict = out.emplace_back(line);
    verdict.set_kind(v1::Verdict::KIND_INCONCLUSIVE);
    const std::string seen =
        line.looks() == 0
            ? absl::StrCat("steps ", site.step_first(), " to ", site.step_last(), " passed")
            : absl::StrCat(line.looks(), line.looks() == 1 ? " look" : " looks", " in ",
                           line.run_steps(), " steps passed");
    verdict.set_reason(absl::StrCat(kNotLookedAtSince, ": ", seen, "; the last look was in step ",
                                    site.step_last(), ", the run ended in step ", run.step_last));
  }
  return out;
}

// Each finding also has a line.
bool Report::Full(const v1::Verdict& verdict) const {
  if (verdict.kind() == v1::Verdict::KIND_FINDING) return findings_.size() >= most_findings_;
  return verdicts_.size() - std::min(findings_.size(), verdicts_.size()) >= most_lines_;
}

// Keeps the earliest text of a cause, with the greatest confidence given for it.
bool Report::Reported::Merge(const v1::Finding& other, const Place& at) {
  const double surest = std::max(Confidence(finding), Confidence(other));
  const bool earlier = at < place;
  if (earlier) {
    finding = other;
    place = at;
  }
  if (finding.has_cause()) finding.mutable_cause()->set_confidence(surest);
  return earlier;
}

// Returns true if, at the same level and strength, this cause is the finding's final one.
bool Report::Reported::Beats(const Reported& other) const {
  const double a = Confidence(finding), b = Confidence(other.finding);
  if (a != b) return a > b;
  return std::tie(place, finding.cause().id()) < std::tie(other.place, other.finding.cause().id());
}

// Discards the verdict of that step. Then shows the remaining cause with the greatest confidence.
// If none remains, shows the next verdict, of any level.
bool Report::Entry::Forget(int64_t step) {
  std::erase_if(others, [&](const auto& reported) { return reported.second.place.first == step; });
  if (place.first != step) return false;
  auto surest = others.begin();
  for (auto it = others.begin(); it != others.end(); ++it) {
    if (it->second.Beats(surest->second)) surest = it;
  }
  gone = surest == others.end();
  if (gone) return true;
  static_cast<Reported&>(*this) = std::move(surest->second);
  others.erase(surest);
  return true;
}

bool Report::Entry::Take(const v1::Finding& other, const Place& at) {
  if (std::exchange(gone, false) || Compare(other, finding) > 0) {
    others.clear();
    finding = other;
    place = at;
    return true;
  }
  if (other.cause().id() == finding.cause().id()) return Merge(other, at);
  auto [known, fresh] = others.try_emplace(other.cause().id());
  Reported& rival = known->second;
  if (fresh) {
    rival.finding = other;
    rival.place = at;
  } else {
    rival.Merge(other, at);
  }
  if (!rival.Beats(*this)) return false;
  auto loser = others.extract(known);
  loser.key() = finding.cause().id();
  std::swap(loser.mapped().finding, finding);
  std::swap(loser.mapped().place, place);
  others.insert(std::move(loser));
  return true;
}

std::vector<const v1::Finding*> Report::findings() const {
  std::vector<const v1::Finding*> list;
  for (const auto& [fingerprint, entry] : findings_) list.push_back(&entry.finding);
  const auto key = [](const v1::Finding& f) {
    return std::make_tuple(-static_cast<int>(f.level()), -static_cast<int>(f.strength()),
                           std::string_view(f.rule()), std::string_view(f.site().run()),
                           std::string_view(f.site().layer()), std::string_view(f.site().op()));
  };
  std::sort(list.begin(), list.end(),
            [&](const auto* a, const auto* b) { return key(*a) < key(*b); });
  return list;
}

std::vector<const v1::Verdict*> Report::verdicts() const {
  std::vector<const v1::Verdict*> list;
  for (const auto& [key, verdict] : verdicts_) list.push_back(&verdict);
  return list;
}

void Report::Reported::Persist(Archive& archive) { archive(finding, place); }

void Report::Entry::Persist(Archive& archive) { archive(finding, count, suppressed); }

void Report::Persist(Archive& archive) {
  // Version 2 did not store the other causes of a finding.
  const uint32_t version = archive.Version(3, 2);
  archive(findings_, verdicts_);
  for (auto& [fingerprint, entry] : findings_) {
    if (version >= 3) {
      archive(entry.place, entry.others);
    } else {
      entry.place = PlaceOf(entry.finding.site());
    }
  }
}

}  // namespace plumbline::rules
