// Stores the incident table in a checkpoint.

#include <algorithm>
#include <utility>

#include "rules/engine/incidents.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {
namespace {

constexpr uint32_t kVersion = 2;

// Converts the state of an older server, with one incident per finding, to incidents by cause. The
// joined incident gets the state that is closest to open.
v1::IncidentBookState Gathered(const v1::IncidentBookState& old) {
  v1::IncidentBookState state;
  state.set_book(old.book());
  state.set_position(old.position());
  std::map<std::string, int> places;
  for (const v1::IncidentState& in : old.incidents()) {
    const v1::Finding& finding = in.incident().finding();
    const std::string fingerprint = rules::IncidentFingerprint(finding);
    const auto [place, fresh] = places.try_emplace(fingerprint, state.incidents_size());
    v1::IncidentState& out =
        fresh ? *state.add_incidents() : *state.mutable_incidents(place->second);
    if (fresh) {
      out = in;
      out.mutable_status()->set_fingerprint(fingerprint);
      out.mutable_status()->set_cause(finding.cause().id());
      out.mutable_incident()->clear_finding();
    } else {
      const uint64_t revision = out.status().revision() + in.status().revision();
      const int64_t seen = std::max(out.status().seen_step(), in.status().seen_step());
      if (in.incident().state() < out.incident().state()) {
        out.mutable_incident()->set_state(in.incident().state());
        *out.mutable_status() = in.status();
        out.mutable_status()->set_fingerprint(fingerprint);
        out.mutable_status()->set_cause(finding.cause().id());
      }
      out.mutable_status()->set_revision(revision);
      out.mutable_status()->set_seen_step(seen);
      out.set_opened_at(std::min(out.opened_at(), in.opened_at()));
      out.set_changed_at(std::max(out.changed_at(), in.changed_at()));
      out.mutable_incident()->set_updated_unix_ns(
          std::max(out.incident().updated_unix_ns(), in.incident().updated_unix_ns()));
    }
    v1::IncidentMember& member = *out.add_members();
    *member.mutable_finding() = finding;
    member.set_count(in.incident().count());
    member.set_whole(true);
    out.set_newest(finding.fingerprint());
  }
  return state;
}

}  // namespace

v1::IncidentBookState IncidentTable::Checkpoint() const {
  v1::IncidentBookState state;
  const MutexLock lock(mutex_);
  state.set_version(kVersion);
  state.set_book(identity_);
  state.set_position(position_);
  std::vector<const Entry*> entries;
  for (const auto& [fingerprint, entry] : by_fingerprint_) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->incident.id() < b->incident.id(); });
  for (const Entry* entry : entries) {
    v1::IncidentState* out = state.add_incidents();
    *out->mutable_incident() = entry->incident;
    *out->mutable_status() = entry->status;
    out->set_opened_at(entry->opened_at);
    out->set_changed_at(entry->changed_at);
    for (const Member* member : entry->members) {
      v1::IncidentMember* kept = out->add_members();
      *kept->mutable_finding() = member->finding;
      kept->set_count(member->count);
      kept->set_ranks(member->ranks);
      kept->set_whole(member->whole);
    }
    if (entry->newest != nullptr) out->set_newest(entry->newest->finding.fingerprint());
  }
  return state;
}

void IncidentTable::Restore(const v1::IncidentBookState& state) {
  if (state.version() < kVersion) {
    v1::IncidentBookState gathered = Gathered(state);
    gathered.set_version(kVersion);
    return Restore(gathered);
  }
  const MutexLock lock(mutex_);
  identity_ = state.book();
  position_ = state.position();
  for (const v1::IncidentState& in : state.incidents()) {
    Entry& entry = by_fingerprint_[in.status().fingerprint()];
    entry.incident = in.incident();
    entry.incident.set_count(0);  // PutIn adds the counts
    entry.status = in.status();
    entry.opened_at = in.opened_at();
    entry.changed_at = in.changed_at();
    for (const v1::IncidentMember& kept : in.members()) {
      Member& member = members_[kept.finding().fingerprint()];
      member.finding = kept.finding();
      member.count = kept.count();
      PutIn(&member, &entry);
      if (kept.ranks() > 0) member.ranks = kept.ranks();
      if (member.whole && !kept.whole()) Slim(&member);
    }
    const auto newest = members_.find(in.newest());
    entry.newest = newest == members_.end() ? nullptr : &newest->second;
    last_id_ = std::max(last_id_, entry.incident.id());
    by_change_[entry.changed_at] = &entry;
    Run& run = runs_[entry.shown().site().run()];
    run.entries.push_back(&entry);
    run.due = std::min(run.due, DueOf(entry));
  }
}

}  // namespace plumbline::server
