// Writes a decision to the journal, and then applies it.

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "rules/suppressions.h"
#include "server/judge/judge.h"

namespace plumbline::server {

// Returns the entry for an event. It carries the number of the last entry of its run that was
// judged before it, or of a later one up to which all runs have been judged; both numbers determine
// its place among the run's entries.
JournalEntry Judge::EntryFor(v1::JudgeEvent* event, uint64_t* after) const {
  event->set_unix_ns(static_cast<int64_t>(UnixNs()));
  *after = EntryOf(RunOf(*event));
  v1::JournalEvent kept;
  kept.set_after(*after);
  *kept.mutable_event() = *event;
  JournalEntry entry;
  entry.type = FrameType::kJournalEvent;
  entry.body = WireBytes(kept.SerializeAsString());
  return entry;
}

// Writes the event to the journal, then applies it. If this returns an error, the server stops, and
// a restart decides again.
absl::Status Judge::KeepAndApply(v1::JudgeEvent event) {
  if (event.has_suppressions() && engine_->SuppressionsAre(rules::FromMessage(event.suppressions()),
                                                           event.suppressions().today())) {
    return absl::OkStatus();  // nothing would change
  }
  uint64_t after = 0;
  JournalEntry entry = EntryFor(&event, &after);
  absl::StatusOr<EntryPrefix> committed = absl::UnknownError("");
  threads_.WithTakeover([&] { committed = journal_->AppendAndWait(std::move(entry)); });
  return ApplyCommitted(after, event, committed);
}

absl::Status Judge::ApplyCommitted(uint64_t after, const v1::JudgeEvent& event,
                                   const absl::StatusOr<EntryPrefix>& committed) {
  if (!committed.ok()) {
    undecided_ = true;
    return committed.status();
  }
  unix_ns_ = worker().unix_ns = committed->unix_ns;
  Apply(after, event);
  applied_event_ = std::max(applied_event_, committed->number);
  return absl::OkStatus();
}

// Returns true if a decision may be written while other work goes on. If no other work waits, this
// has no benefit. A checkpoint and a decision about every run wait until no work is in progress.
bool Judge::MayKeepLater() const {
  return fair_queue_.flows() > 1 && for_all_.empty() && decisions_.open() &&
         !checkpoints_.waiting();
}

// Writes a decision without waiting for the disk, so that the decisions about many runs share a
// commit. Its run waits; other runs are judged meanwhile.
void Judge::KeepLater(FairQueue::Begun begun) {
  auto decision = std::make_shared<LaterDecisions::Decision>();
  decision->begun = std::move(begun);
  JournalEntry entry = EntryFor(&decision->begun.work.item->event, &decision->after);
  later_.Write(journal_, std::move(entry), std::move(decision));
}

// Applies a decision that the journal holds, or handles that it could not be written.
bool Judge::ApplyLater(const LaterDecisions::Decision& decision) {
  BeginWork();
  const JudgeItem& item = *decision.begun.work.item;
  const absl::Status applied = ApplyCommitted(decision.after, item.event, decision.committed);
  if (item.decided) item.decided(applied);
  decisions_.Decided();
  fair_queue_.Done(decision.begun, threads_.UsedByMine());
  return EndWork();
}

}  // namespace plumbline::server
