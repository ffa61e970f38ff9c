// Puts findings into incidents and moves them between incidents.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/engine/incidents.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostWhole = 64;    // findings of an incident that are kept complete
constexpr int kMostGathered = 64;    // findings of an incident that are listed in messages
constexpr int kMostRanksOfSlim = 8;  // limit of the ranks that a shortened finding names

// Run of the artificial finding by which plumb doctor checks that findings arrive. Its incidents
// are resolved as they open, so that none has to be closed by a person.
constexpr char kPlantedRun[] = "plumb-doctor";

// The state of an incident before a finding is added.
struct Shown {
  bool any = false;
  std::string fingerprint;
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  v1::Strength strength = v1::STRENGTH_UNSPECIFIED;
  bool suppressed = false;

  explicit Shown(const v1::Finding* f) {
    if (f == nullptr) return;
    any = true;
    fingerprint = f->fingerprint();
    level = f->level();
    strength = f->strength();
    suppressed = f->suppressed();
  }
  bool WeakerThan(const v1::Finding& f) const {
    return any && (f.level() > level || f.strength() > strength);
  }
};

template <typename Member>
void FillSite(const Member& member, v1::IncidentSite* out) {
  const v1::Finding& f = member.finding;
  out->set_fingerprint(f.fingerprint());
  out->set_layer(f.site().layer());
  out->set_op(f.site().op());
  out->set_level(f.level());
  out->set_strength(f.strength());
  out->set_step_first(f.site().step_first());
  out->set_step_last(f.site().step_last());
  out->set_file(f.site().file());
  out->set_line(f.site().line());
  out->set_ranks(member.ranks);
  out->set_count(member.count);
  out->set_suppressed(f.suppressed());
}

}  // namespace

bool IncidentTable::ShownFirst::operator()(const Member* a, const Member* b) const {
  return rules::ShowsBefore(a->finding, b->finding);
}

IncidentTable::Entry* IncidentTable::EntryOf(const v1::Finding& finding, int64_t now) {
  const std::string fingerprint = rules::IncidentFingerprint(finding);
  auto [found, fresh] = by_fingerprint_.try_emplace(fingerprint);
  Entry& entry = found->second;
  if (!fresh) return &entry;
  entry.incident.set_id(++last_id_);
  entry.status.set_fingerprint(fingerprint);
  entry.status.set_cause(finding.cause().id());
  entry.incident.set_opened_unix_ns(now);
  runs_[finding.site().run()].entries.push_back(&entry);
  return &entry;
}

// A member's finding may change only between TakeOut and PutIn, because members are ordered by it.
void IncidentTable::TakeOut(Member* member) {
  Entry* const entry = std::exchange(member->entry, nullptr);
  if (entry == nullptr) return;
  entry->members.erase(member);
  entry->incident.set_count(entry->incident.count() - member->count);
  if (member->whole) --entry->whole;
  if (entry->newest == member) entry->newest = nullptr;
}

void IncidentTable::PutIn(Member* member, Entry* entry) {
  member->entry = entry;
  Member* const before = entry->members.empty() ? nullptr : *entry->members.begin();
  entry->members.insert(member);
  entry->incident.set_count(entry->incident.count() + member->count);
  entry->newest = member;
  member->whole = true;
  member->ranks = static_cast<uint32_t>(member->finding.site().ranks_size());
  ++entry->whole;
  if (entry->whole <= kMostWhole) return;
  // The representative is always complete.
  if (*entry->members.begin() != member) {
    Slim(member);
  } else if (before != nullptr && before->whole) {
    Slim(before);
  }
}

// Shortens a finding. Its place stays the same, because the order does not depend on the removed
// fields.
void IncidentTable::Slim(Member* member) {
  v1::Finding& f = member->finding;
  f.clear_explanation();
  f.clear_forecast();
  f.clear_assumptions();
  f.clear_witness();
  f.clear_fix();
  f.clear_details();
  auto* ranks = f.mutable_site()->mutable_ranks();
  std::sort(ranks->begin(), ranks->end());
  if (ranks->size() > kMostRanksOfSlim) ranks->Truncate(kMostRanksOfSlim);
  member->whole = false;
  --member->entry->whole;
}

// If all findings of an incident came from one other incident, records that incident.
void IncidentTable::NoteOrigin(Entry* to, const Entry* from, bool opens, bool joins) {
  if (!joins) return;
  std::string& origin = *to->status.mutable_moved_from();
  const std::string came = from == nullptr ? "" : from->status.fingerprint();
  if (opens || to->members.empty()) {
    origin = came;
  } else if (origin != came) {
    origin.clear();
  }
}

// Reopens an incident that was merged.
void IncidentTable::Revive(Entry* entry) {
  const auto into = by_fingerprint_.find(entry->status.merged_into());
  entry->status.clear_merged_into();
  entry->incident.clear_finding();
  if (into == by_fingerprint_.end()) return;
  auto* absorbed = into->second.status.mutable_absorbed();
  absorbed->erase(std::remove(absorbed->begin(), absorbed->end(), entry->status.fingerprint()),
                  absorbed->end());
}

// Merges `from`, which is empty, into `into`. If all findings of `into` came from `from`, the
// decisions of people about `from` still apply.
void IncidentTable::Merge(Entry* from, Entry* into, v1::Finding last, int64_t now,
                          PendingCalls* pending) {
  const v1::Incident::State before = from->incident.state();
  const bool quiet =
      before == v1::Incident::STATE_ACKNOWLEDGED || before == v1::Incident::STATE_SILENCED;
  if (quiet && into->incident.state() == v1::Incident::STATE_OPEN &&
      into->status.moved_from() == from->status.fingerprint()) {
    into->incident.set_state(before);
    into->status.set_who(from->status.who());
    into->status.set_reason(from->status.reason());
    if (from->status.has_silenced_until_step())
      into->status.set_silenced_until_step(from->status.silenced_until_step());
    if (from->status.has_silenced_until_unix_ns())
      into->status.set_silenced_until_unix_ns(from->status.silenced_until_unix_ns());
  }
  SetState(from, v1::Incident::STATE_RESOLVED);
  *from->incident.mutable_finding() = std::move(last);
  from->status.set_merged_into(into->status.fingerprint());
  into->status.add_absorbed(from->status.fingerprint());
  Touch(from, now);
  Report(*from, Revision::CHANGE_MERGED, "plumbd",
         absl::StrCat("its last finding is now in incident ", into->incident.id(), " now, cause ",
                      into->status.cause()),
         pending);
}

IncidentTable::Placed IncidentTable::Put(const v1::Finding& finding, uint64_t count) {
  const int64_t now = unix_ns_();
  PendingCalls pending;
  Placed placed;
  {
    const MutexLock lock(mutex_);
    pending = CallsNow();
    Member& member = members_[finding.fingerprint()];
    Entry* const to = EntryOf(finding, now);
    Entry* const from = member.entry == to ? nullptr : member.entry;
    const bool fresh = to->changed_at == 0;
    const bool returned = !fresh && to->over();
    const bool joins = member.entry != to;
    const Shown before(to->members.empty() ? nullptr : &to->shown());
    NoteOrigin(to, from, fresh || returned, joins);
    v1::Finding last;  // as of before the change
    if (from != nullptr && from->members.size() == 1) last = member.finding;
    TakeOut(&member);
    member.finding = finding;
    member.count = count;
    if (to->merged()) Revive(to);
    PutIn(&member, to);
    Touch(to, now);
    if (fresh) to->opened_at = position_;
    NoteApart(to, fresh, finding.site().step_last());
    to->status.set_seen_step(joins && (fresh || to->members.size() == 1)
                                 ? finding.site().step_last()
                                 : std::max(to->status.seen_step(), finding.site().step_last()));

    const bool stronger = !returned && before.WeakerThan(to->shown());
    const bool acknowledged = to->incident.state() == v1::Incident::STATE_ACKNOWLEDGED;
    if (returned || (stronger && acknowledged)) SetState(to, v1::Incident::STATE_OPEN);
    if (fresh || returned || stronger) {
      Report(*to,
             fresh      ? Revision::CHANGE_OPENED
             : returned ? Revision::CHANGE_RETURNED
                        : Revision::CHANGE_STRONGER,
             from == nullptr ? "" : "plumbd",
             from == nullptr ? ""
                             : absl::StrCat("a finding of incident ", from->incident.id(),
                                            " has a different cause"),
             &pending);
    }
    if (from != nullptr) Left(from, to, std::move(last), now, &pending);
    if (finding.site().run() == kPlantedRun) {
      Touch(to, now);
      SetState(to, v1::Incident::STATE_RESOLVED);
      Report(*to, Revision::CHANGE_RESOLVED, "plumbd", "plumb doctor created it as a test",
             &pending);
    }
    Run& run = runs_[finding.site().run()];
    run.due = std::min(run.due, DueOf(*to));
    placed.opened = fresh || returned;
    placed.shows = &to->shown() == &member.finding &&
                   (placed.opened || stronger || (before.suppressed && !finding.suppressed()) ||
                    before.fingerprint != finding.fingerprint());
  }
  Make(pending);
  return placed;
}

// Records the distance between findings. It is limited, because a fault that was fixed and returns
// much later does not show how often it is sampled.
void IncidentTable::NoteApart(Entry* to, bool fresh, int64_t step) const {
  constexpr int64_t kMostApart = 16;  // as a multiple of quiet_steps
  const int64_t seen = to->status.seen_step();
  if (fresh || step <= seen || seen < 0) return;
  const int64_t most = kMostApart * std::min(quiet_steps_, INT64_MAX / (2 * kMostApart));
  const int64_t apart = std::min(step - seen, most);
  to->status.set_steps_apart(std::max(to->status.steps_apart(), apart));
}

void IncidentTable::Left(Entry* from, Entry* to, v1::Finding last, int64_t now,
                         PendingCalls* pending) {
  if (from->members.empty()) return Merge(from, to, std::move(last), now, pending);
  int64_t seen = INT64_MIN;
  for (const Member* member : from->members)
    seen = std::max(seen, member->finding.site().step_last());
  from->status.set_seen_step(seen);
  Touch(from, now);
  Run& run = runs_[from->shown().site().run()];
  run.due = std::min(run.due, DueOf(*from));
}

// Returns the status with its sites.
v1::IncidentStatus IncidentTable::StatusOf(const Entry& entry) {
  v1::IncidentStatus out = entry.status;
  out.set_site_count(entry.members.size());
  out.set_lost_on_gpus(true);
  for (const Member* member : entry.members) {
    const v1::Finding& finding = member->finding;
    if (finding.lost_rank_seconds() > 0) {
      out.set_lost_rank_seconds(out.lost_rank_seconds() + finding.lost_rank_seconds());
      out.set_lost_on_gpus(out.lost_on_gpus() && finding.lost_on_gpus());
    }
    if (out.sites_size() < kMostGathered) FillSite(*member, out.add_sites());
  }
  if (out.lost_rank_seconds() == 0) out.clear_lost_on_gpus();
  if (entry.newest != nullptr) FillSite(*entry.newest, out.mutable_newest());
  return out;
}

}  // namespace plumbline::server
