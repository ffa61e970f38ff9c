// Judges the entries that an earlier process left: one after the other, on one thread.

#include <algorithm>
#include <utility>

#include "server/judge/judge.h"
#include "server/process/log.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {

namespace {

// Returns, for each event, the least number among this event and all later events.
std::vector<uint64_t> LeastFrom(const std::vector<StoredEvent>& events) {
  std::vector<uint64_t> least(events.size() + 1, ~uint64_t{0});
  for (size_t i = events.size(); i-- > 0;) least[i] = std::min(least[i + 1], events[i].number);
  return least;
}

}  // namespace

// Returns false if it was stopped before the end; the next start continues.
bool Judge::JudgeAgain(const Replay& replay, JournalReader& reader) {
  const auto start = JudgeQueue::Clock::now();
  const uint64_t position = incident_table_->position();
  const std::vector<uint64_t> least = LeastFrom(replay.events);
  bool reordered = false;
  size_t next = 0;
  const auto apply_until = [&](uint64_t entry) {
    for (; next < replay.events.size() && replay.events[next].event.after() < entry; ++next) {
      const StoredEvent& event = replay.events[next];
      unix_ns_ = worker().unix_ns = event.unix_ns;
      reordered |= ReportsAhead(event.event.event());
      Apply(judged_entry_, event.event.event());
      applied_event_ = std::max(applied_event_, event.number);
    }
  };
  uint64_t judged = 0;
  StoredEntry entry;
  for (;;) {
    const JournalReader::Result result = reader.Next(&entry);
    if (result == JournalReader::Result::kEnd) break;
    if (stop_by_.load() != JudgeQueue::Clock::time_point::max()) return false;
    if (result != JournalReader::Result::kEntry || entry.type != FrameType::kJournalBatch) continue;
    apply_until(entry.prefix.number);
    worker().busy.Begin();
    limits_.KeepInReplay(next < replay.events.size());
    JudgeAgain(entry);
    ++judged;
    // A checkpoint stores by one number which events were applied. If events were written in
    // another order than they are applied in (journal_scan.h), that number is exact only at some
    // places.
    if (applied_event_ < least[next]) CheckpointIfDue();
    worker().busy.End();
  }
  apply_until(JournalReader::kAll);
  restored_ahead_.clear();
  limits_.Keep();
  if (reordered) incident_table_->CameInAnotherOrder(position);
  {
    const MutexLock lock(mutex_);
    runs_.DisconnectAll(Now());
  }
  const std::chrono::duration<double> took = JudgeQueue::Clock::now() - start;
  LogInfo("{} entries of the journal judged again in {:.3f} s", judged, took.count());
  return true;
}

void Judge::DeclareSets(const StreamPositions& streams) {
  for (const auto& [id, stream] : streams.streams()) {
    v1::Batch declared;
    declared.set_stream_id(id);
    for (const auto& [set, record] : stream.sets) declared.MergeFromString(record);
    declared.clear_sources();
    if (declared.series_sets().empty()) continue;
    if (const absl::Status added = engine_->DeclareSets(declared); !added.ok())
      LogError("journal: stream {:016x}: {}", id, std::string(added.message()));
  }
}

// Reports findings of runs in progress, because the earlier process may have died before it
// reported them.
void Judge::ReportFoundAgain() {
  for (const auto& [fingerprint, finding] : std::exchange(found_again_, {})) {
    const bool over = [&, run = finding.site().run()] {
      const MutexLock lock(mutex_);
      return runs_.Ended(run);
    }();
    if (!over && on_finding_) on_finding_(finding);
  }
}

// Returns true if the checkpoint already contains the batch, because its runs were judged further.
// The runs of one batch are judged together, so either all of them were judged or none.
bool Judge::KnownAhead(uint64_t entry, const v1::Batch& batch) const {
  return std::any_of(batch.sources().begin(), batch.sources().end(), [&](const v1::Source& source) {
    const auto ahead = restored_ahead_.find(source.run());
    return ahead != restored_ahead_.end() && ahead->second >= entry;
  });
}

void Judge::JudgeAgain(const StoredEntry& entry) {
  auto batch = std::make_shared<v1::Batch>();
  const std::string_view body = entry.body();
  absl::Status whole = batch->ParseFromArray(body.data(), static_cast<int>(body.size()))
                           ? CheckKept(*batch)
                           : absl::DataLossError("no batch");
  if (!whole.ok()) {
    LogError("journal: entry {} cannot be judged: {:?}", entry.prefix.number,
             std::string(whole.message()));
    ++counters_->journal_lost;
    return;
  }
  batch->set_sequence(entry.prefix.sequence);
  unix_ns_ = worker().unix_ns = entry.prefix.unix_ns;
  checkpoints_.Judged(entry.payload.size());
  if (restored_ahead_.empty() || !KnownAhead(entry.prefix.number, *batch)) {
    ParsedBatch parsed;
    parsed.batch = std::move(batch);
    const std::vector<std::string> runs = RunTable::RunsOf(*parsed.batch);
    HandleBatch(entry.prefix.number, entry.prefix.stream_id, parsed, runs);
  }
  judged_entry_ = entry.prefix.number;
  store_->Judged(judged_entry_);
}

}  // namespace plumbline::server
