#include "rules/engine/report.h"

#include <algorithm>

#include "rules/lib/archive_proto.h"

namespace plumbline::rules {
namespace {

// Inconclusive reasons read "short-id: sentence with numbers"; the id is what they share.
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

bool Stronger(const v1::Finding& a, const v1::Finding& b) {
  return std::make_pair(a.level(), a.strength()) > std::make_pair(b.level(), b.strength());
}

// A cause named later and surer than the one before refines the finding.
bool Surer(const v1::Finding& a, const v1::Finding& b) {
  return a.level() == b.level() && a.strength() == b.strength() &&
         a.cause().id() != b.cause().id() && a.cause().confidence() > b.cause().confidence();
}

}  // namespace

Report::Change Report::Add(const v1::Verdict& verdict) {
  const v1::FindingSite& site = verdict.site();
  auto [line, fresh] = verdicts_.try_emplace(
      {verdict.rule(), site.run(), site.layer(), site.op(), verdict.kind(), ReasonId(verdict)},
      verdict);
  if (fresh) {
    line->second.clear_finding();
  } else {
    Widen(site, *line->second.mutable_site());
  }
  if (verdict.kind() != v1::Verdict::KIND_FINDING) return {};

  Entry& entry = findings_[verdict.finding().fingerprint()];
  Change change;
  change.opened = entry.count == 0;
  if (change.opened) {
    entry.finding = verdict.finding();
  } else {
    v1::FindingSite whole = entry.finding.site();
    Widen(site, whole);
    change.stronger = Stronger(verdict.finding(), entry.finding);
    if (change.stronger || Surer(verdict.finding(), entry.finding)) {
      entry.finding = verdict.finding();
      *line->second.mutable_details() = verdict.details();
    }
    // Hidden as long as all of it is.
    entry.finding.set_suppressed(entry.suppressed && verdict.finding().suppressed());
    *entry.finding.mutable_site() = whole;
  }
  change.unsuppressed = entry.suppressed && !entry.finding.suppressed();
  entry.suppressed = entry.finding.suppressed();
  change.count = ++entry.count;
  change.finding = &entry.finding;
  return change;
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

void Report::Entry::Persist(Archive& archive) { archive(finding, count, suppressed); }

void Report::Persist(Archive& archive) {
  archive.Version(2, 2);
  archive(findings_, verdicts_);
}

}  // namespace plumbline::rules
