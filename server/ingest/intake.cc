#include "server/ingest/intake.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/journal.pb.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// Returns the number of items of a batch: evidence, and the values of its rows.
uint64_t ItemsOf(const v1::Batch& batch) {
  auto items = static_cast<uint64_t>(batch.evidence_size());
  for (const v1::SeriesRows& rows : batch.series()) items += rules::CountPresent(rows);
  return items;
}

// Returns OK if every source belongs to a run in the hello of this connection, because write access
// was checked only for those.
absl::Status CheckRuns(const std::set<std::string>& runs, const v1::Batch& batch) {
  for (int i = 0; i < batch.sources_size(); ++i) {
    if (runs.contains(batch.sources(i).run())) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        "sources[", i, "]: expected a run of the hello, found \"", batch.sources(i).run(), "\""));
  }
  return absl::OkStatus();
}

// Returns the run that is charged for the batch while it waits for the judge.
std::string ChargedRunOf(const v1::Batch& batch) {
  return batch.sources().empty() ? std::string() : batch.sources(0).run();
}

std::function<void()> ResumptionOf(const StreamState& stream) PLUMB_REQUIRES(stream.mutex) {
  return [weak = stream.owner] {
    if (auto connection = weak.lock()) connection->Resume();
  };
}

JudgeItem ConnectionItem(JudgeItem::Kind kind, StreamState& stream, bool backlog = false)
    PLUMB_REQUIRES(stream.mutex) {
  JudgeItem item;
  item.kind = kind;
  item.backlog = backlog;
  item.stream_id = stream.id;
  item.sources = stream.ranks.Shared();
  return item;
}

// Returns the sources that are not in the journal yet.
std::vector<SourceRecord> NewSources(StreamState* stream) PLUMB_REQUIRES(stream->mutex) {
  std::vector<SourceRecord> fresh;
  while (stream->ranks_kept < stream->ranks.size()) {
    fresh.push_back(RecordOf(stream->ranks.list()[stream->ranks_kept++]));
  }
  return fresh;
}

// Calls the resumptions. No lock may be held.
void Run(const std::vector<Pacer::Resume>& free) {
  for (const Pacer::Resume& resume : free) resume();
}

// Shares the item, because std::function copies what it holds, and a parsed batch must not be
// copied.
std::shared_ptr<JudgeItem> Share(JudgeItem item) {
  return std::make_shared<JudgeItem>(std::move(item));
}

}  // namespace

absl::Status Intake::CheckHello(const v1::Hello& hello) const {
  if (hello.protocol() == 0 || hello.stream_id() == 0) {
    return absl::InvalidArgumentError("hello needs protocol and stream_id");
  }
  if (auto s = rules::CheckSources(hello.sources(), limits_); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("hello: ", std::string(s.message())));
  }
  for (const v1::Source& source : hello.sources()) {
    if (source.run().empty())
      return absl::InvalidArgumentError("hello: expected a run's name, found none");
  }
  for (const v1::SeriesSet& set : hello.series_sets()) {
    if (auto s = CheckSeriesSet(set, limits_); !s.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("hello: series_sets", std::string(s.message())));
    }
  }
  return absl::OkStatus();
}

std::set<std::string> Intake::RunsOf(const v1::Hello& hello) {
  std::set<std::string> runs;
  for (const v1::Source& source : hello.sources()) runs.insert(source.run());
  return runs;
}

absl::Status Intake::MayJoin(const v1::Hello& hello, const MayWrite& may_write) const {
  if (auto s = CheckHello(hello); !s.ok()) return s;
  for (const std::string& run : RunsOf(hello)) {
    if (auto s = may_write(run); !s.ok()) return s;
    if (auto s = judge_->quarantine().MayWrite(run); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<Intake::Joined> Intake::Join(v1::Hello* stated, std::weak_ptr<Connection> owner,
                                            const MayWrite& may_write, const Sender& sender,
                                            std::shared_ptr<NameTable::Hold> names) {
  const v1::Hello& hello = *stated;
  const auto may = [&](const std::string& run) { return may_write(run).ok(); };
  if (auto s = table_->MayTakeOver(hello, may); !s.ok()) return s;
  const uint32_t ahead = table_->AttemptsAhead(hello);
  Attempts::Raise(ahead, stated->mutable_sources());
  auto opened = table_->Open(hello.stream_id(), sender.entries, sender.connection);
  if (!opened.ok()) return opened.status();
  Joined joined;
  joined.ahead = ahead;
  joined.runs = RunsOf(hello);
  joined.names = std::move(names);
  joined.stream = std::move(*opened);
  std::shared_ptr<Connection> older;
  std::vector<Pacer::Resume> free;
  absl::Status claimed;
  {
    const MutexLock lock(joined.stream->mutex);
    for (int i = 0; claimed.ok() && i < hello.sources_size(); ++i) {
      claimed = ClaimLocked(*joined.stream, hello.sources(i));
    }
    if (claimed.ok()) {
      joined.connection = ++joined.stream->connection;
      joined.stream->owner_entries = sender.entries;
      older = std::exchange(joined.stream->owner, std::move(owner)).lock();
      JoinLocked(hello, &joined, &free);
    } else if (joined.stream->owner.expired()) {
      table_->Closed(joined.stream->id);
    }
  }
  Run(free);
  if (!claimed.ok()) return claimed;
  if (older) older->OnSuperseded();
  table_->Greeted(hello, ahead);
  ++counters_->streams;
  return joined;
}

void Intake::JoinLocked(const v1::Hello& hello, Joined* joined, std::vector<Pacer::Resume>* free) {
  if (const auto owner = joined->stream->owner.lock())
    pacer_->Join(joined->stream->id, owner->call(), hello, free);
  // The number up to which this server holds batches. If it lost its memory and has no journal,
  // this is 0 although the numbers continue, so that the agent declares its sites again.
  joined->held = joined->stream->held;
  DeclareLocked(joined->stream, hello);
  journal_->Then(
      [judge = judge_, item = Share(ConnectionItem(JudgeItem::Kind::kConnected, *joined->stream,
                                                   hello.state().queued_batches() != 0))] {
        judge->Push(std::move(*item));
      });
  const uint64_t first = joined->stream->sequencer.contiguous() + 1;
  std::vector<ParsedBatch> ready;
  const uint64_t skipped = joined->stream->sequencer.SkipTo(hello.next_sequence(), &ready);
  const HandedOn handed = HandOnLocked(joined->stream, std::move(ready), free);
  joined->room = handed.room;
  joined->refused = handed.refused;
  if (skipped == 0) return;
  if (first > 1) counters_->skipped_batches += skipped;
  SkipLocked(joined->stream, first, hello.next_sequence() - 1);
}

void Intake::Leave(const Joined& joined, bool ended) {
  LeaveStream(joined, ended);
  joined.names->Release();
}

void Intake::LeaveStream(const Joined& joined, bool ended) {
  StreamState& stream = *joined.stream;
  std::vector<Pacer::Resume> free;
  {
    const MutexLock lock(stream.mutex);
    if (stream.connection != joined.connection) return;  // a newer connection has the stream
    stream.owner.reset();
    table_->Closed(stream.id);
    pacer_->Leave(stream.id, &free);
    JudgeItem left = ConnectionItem(JudgeItem::Kind::kDisconnected, stream);
    left.process_ended = ended;
    journal_->Then(
        [judge = judge_, item = Share(std::move(left))] { judge->Push(std::move(*item)); });
  }
  Run(free);
}

void Intake::Hear(const Joined& joined, const v1::Heartbeat& heartbeat) {
  StreamState& stream = *joined.stream;
  std::vector<Pacer::Resume> free;
  {
    const MutexLock lock(stream.mutex);
    if (stream.connection != joined.connection) return;
    pacer_->Hear(stream.id, heartbeat, &free);
    const bool backlog =
        heartbeat.any_step() && heartbeat.oldest_unsent_step() <= heartbeat.newest_step();
    // The queued heartbeat carries the newest report. The cost of a heartbeat grows with the
    // stream's ranks, so at most one per stream is in the judge's queue.
    stream.beat->backlog = backlog;
    if (!stream.beat->on_its_way.exchange(true)) {
      JudgeItem item = ConnectionItem(JudgeItem::Kind::kBeat, stream);
      item.beat = stream.beat;
      // Queued after the earlier batches.
      journal_->Then(
          [judge = judge_, item = Share(std::move(item))] { judge->Push(std::move(*item)); });
    }
  }
  Run(free);
}

absl::Status Intake::ClaimLocked(StreamState& stream, const v1::Source& source) {
  if (stream.ranks.Has(source)) return absl::OkStatus();
  const auto ranks = static_cast<size_t>(limits_.max_sources);
  const auto& runs = stream.ranks.runs();
  if (stream.ranks.size() >= ranks ||
      (runs.size() >= limits_.max_runs && !runs.contains(source.run()))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this stream reports for ", stream.ranks.size(), " ranks of ", runs.size(),
                     " runs already, at most ", ranks, " of ", limits_.max_runs, " are accepted"));
  }
  if (auto s = table_->Claim(stream.id, source); !s.ok()) return s;
  if (const auto earlier = stream.ranks.Add(source)) table_->Release(stream.id, *earlier);
  return absl::OkStatus();
}

// Returns the sets that fit. If a set has more names than its run may have, it stays unknown here,
// and its rows are refused by number; the stream continues.
SeriesSets::Declared Intake::SetsThatFit(const v1::Hello& hello) const {
  SeriesSets::Declared fit;
  const std::set<std::string> runs = RunsOf(hello);
  for (const v1::SeriesSet& set : hello.series_sets()) {
    absl::Status full;
    for (const std::string& run : runs) {
      if (full.ok()) full = names_->Add(run, set);
    }
    if (full.ok()) {
      *fit.Add() = set;
    } else {
      LogWarning("stream {:016x}: hello: {:?}", hello.stream_id(), std::string(full.message()));
    }
  }
  return fit;
}

// Adds sets. Their records are kept as long as the stream is known, so they count against a limit.
absl::Status Intake::AddSetsLocked(StreamState& stream, const SeriesSets::Declared& sets,
                                   std::vector<SetRecord>* fresh) const {
  uint64_t bytes = 0;
  for (const v1::SeriesSet& set : sets) {
    if (!stream.sets.Has(set.id())) bytes += SeriesSets::kRecord + set.ByteSizeLong();
  }
  if (auto full = stream.set_bytes.Take(bytes); !full.ok()) return full;
  absl::Status added = stream.sets.Add(sets, limits_.max_sets, fresh);
  if (!added.ok()) stream.set_bytes.Give(bytes);
  return added;
}

// Writes the new sets of a hello to the journal as a batch with number 0.
void Intake::DeclareLocked(const std::shared_ptr<StreamState>& stream, const v1::Hello& hello) {
  std::vector<SetRecord> fresh;
  const absl::Status added = AddSetsLocked(*stream, SetsThatFit(hello), &fresh);
  if (!added.ok()) {
    LogWarning("stream {:016x}: hello: {:?}", stream->id, std::string(added.message()));
    return;
  }
  if (fresh.empty()) return;
  ParsedBatch declaration;
  declaration.batch = std::make_shared<v1::Batch>();
  v1::Batch head;
  head.set_stream_id(stream->id);
  *head.mutable_sources() = hello.sources();
  std::string wire = head.SerializeAsString();
  for (const auto& [id, record] : fresh) wire += record;
  declaration.batch->ParseFromString(wire);
  declaration.bytes = wire.size();

  JournalEntry entry;
  entry.stream_id = stream->id;
  entry.body = WireBytes(wire);
  entry.sets = std::move(fresh);
  entry.sources = NewSources(stream.get());
  JudgeItem item;
  item.stream_id = stream->id;
  item.batch = std::move(declaration);
  item.charged_run = ChargedRunOf(*item.batch.batch);
  item.batch.Weigh();
  judge_->Admit(item.charged_run, item.batch.weight(), nullptr);
  journal_->Append(std::move(entry),
                   [judge = judge_, item = Share(std::move(item))](const EntryPrefix& prefix) {
                     item->entry = prefix.number;
                     item->unix_ns = prefix.unix_ns;
                     judge->Push(std::move(*item));
                   });
}

bool Intake::IsDue(const Joined& joined, uint64_t sequence) const {
  const MutexLock lock(joined.stream->mutex);
  return sequence == joined.stream->sequencer.contiguous() + 1;
}

Intake::Taken Intake::Offer(const Joined& joined, uint64_t sequence, ParsedBatch batch) {
  std::vector<Pacer::Resume> free;
  const Taken taken = OfferLocked(joined, sequence, std::move(batch), &free);
  Run(free);
  return taken;
}

Intake::Taken Intake::OfferLocked(const Joined& joined, uint64_t sequence, ParsedBatch batch,
                                  std::vector<Pacer::Resume>* free) {
  Taken taken;
  batch.batch->set_sequence(sequence);
  const MutexLock lock(joined.stream->mutex);
  if (joined.stream->connection != joined.connection) {
    taken.outcome = Outcome::kSuperseded;
    return taken;
  }
  if (batch.refused.empty()) RefuseIfMalformed(*joined.stream, joined.runs, &batch);
  std::vector<ParsedBatch> ready;
  switch (joined.stream->sequencer.Take(sequence, std::move(batch), &ready)) {
    case Sequencer::Offer::kInOrder:
      break;
    case Sequencer::Offer::kWaits:
      ++counters_->out_of_order;
      taken.outcome = Outcome::kWaits;
      break;
    case Sequencer::Offer::kDuplicate:
      ++counters_->duplicates;
      taken.outcome = Outcome::kDuplicate;
      break;
    case Sequencer::Offer::kOverflow:
      taken.outcome = Outcome::kOverflow;
      break;
  }
  const HandedOn handed = HandOnLocked(joined.stream, std::move(ready), free);
  taken.room = handed.room;
  taken.refused = handed.refused;
  taken.next = joined.stream->sequencer.contiguous() + 1;
  taken.held = joined.stream->held;
  return taken;
}

// Makes the checks that are possible before the batch's turn comes.
void Intake::RefuseIfMalformed(StreamState& stream, const std::set<std::string>& runs,
                               ParsedBatch* batch) {
  absl::Status status = batch->batch->stream_id() == stream.id
                            ? CheckReceived(*batch->batch, limits_)
                            : absl::InvalidArgumentError("stream_id is not the one of the hello");
  if (status.ok()) status = CheckRuns(runs, *batch->batch);
  if (status.ok()) status = names_->Add(*batch->batch, stream.owner_entries);
  const Quarantine& quarantine = judge_->quarantine();
  for (int i = 0; status.ok() && i < batch->batch->sources_size(); ++i) {
    const v1::Source& source = batch->batch->sources(i);
    status = quarantine.MayWrite(source.run());
    if (status.ok()) status = ClaimLocked(stream, source);
  }
  if (!status.ok()) batch->refused = std::string(status.message());
}

Intake::HandedOn Intake::HandOnLocked(const std::shared_ptr<StreamState>& stream,
                                      std::vector<ParsedBatch> ready,
                                      std::vector<Pacer::Resume>* free) {
  HandedOn handed;
  bool near = true;
  for (size_t i = 0; i < ready.size(); ++i) {
    // One resumption is enough.
    Pacer::Resume resume = i + 1 == ready.size() ? ResumptionOf(*stream) : nullptr;
    if (ready[i].refused.empty()) {
      near = pacer_->Hear(stream->id, *ready[i].batch, ready[i].unsent, resume, free);
    }
    KeepLocked(stream, std::move(ready[i]), near ? std::move(resume) : nullptr, &handed);
  }
  if (!handed.room) ++counters_->paused_reads;
  if (!near) ++counters_->stopped_ahead;
  handed.room = handed.room && near;
  return handed;
}

// Passes one batch, whose turn it is, to the journal. `handed->room` is set for the last one.
void Intake::KeepLocked(const std::shared_ptr<StreamState>& stream, ParsedBatch batch,
                        std::function<void()> resume, HandedOn* handed) {
  const uint64_t sequence = batch.batch->sequence();
  JournalEntry entry;
  if (batch.refused.empty()) {
    absl::Status fits = stream->sets.CheckRows(*batch.batch);
    if (fits.ok()) fits = AddSetsLocked(*stream, batch.batch->series_sets(), &entry.sets);
    if (!fits.ok()) batch.refused = std::string(fits.message());
  }
  if (!batch.refused.empty()) {
    RefuseLocked(stream, sequence, std::move(batch));
    ++handed->refused;
    handed->room = true;
    return;
  }
  ++counters_->batches;
  counters_->evidence += ItemsOf(*batch.batch);
  const bool at_once = NoteFinished(*stream, *batch.batch);
  entry.stream_id = stream->id;
  entry.sequence = sequence;
  entry.body = std::move(batch.wire);
  entry.sources = NewSources(stream.get());
  JudgeItem item;
  item.stream_id = stream->id;
  item.batch = std::move(batch);
  item.charged_run = ChargedRunOf(*item.batch.batch);
  item.batch.Weigh();
  handed->room = judge_->Admit(item.charged_run, item.batch.weight(), std::move(resume));
  journal_->Append(std::move(entry), [judge = judge_, stream, at_once,
                                      item = Share(std::move(item))](const EntryPrefix& prefix) {
    item->entry = prefix.number;
    item->unix_ns = prefix.unix_ns;
    judge->Push(std::move(*item));
    Held(*stream, prefix.sequence, at_once, "");
  });
}

// Refuses a batch. Its number is used up. This must be as durable as the batch would have been.
void Intake::RefuseLocked(const std::shared_ptr<StreamState>& stream, uint64_t sequence,
                          ParsedBatch batch) {
  const uint64_t items = std::max(ItemsOf(*batch.batch), batch.refused_items);
  ++counters_->rejected_batches;
  counters_->rejected_evidence += items;
  LogWarning("stream {:016x} batch {} refused: {:?}", stream->id, sequence, batch.refused);
  v1::JournalSkip skip;
  skip.set_first(sequence);
  skip.set_refused(true);
  skip.set_reason(batch.refused);
  skip.set_evidence(items);
  JournalEntry entry;
  entry.type = FrameType::kJournalSkip;
  entry.stream_id = stream->id;
  entry.sequence = sequence;
  entry.body = WireBytes(skip.SerializeAsString());
  journal_->Append(std::move(entry),
                   [stream, reason = std::move(batch.refused)](const EntryPrefix& prefix) {
                     Held(*stream, prefix.sequence, true, reason);
                   });
}

void Intake::SkipLocked(const std::shared_ptr<StreamState>& stream, uint64_t first, uint64_t last) {
  v1::JournalSkip skip;
  skip.set_first(first);
  skip.set_reason("the agent no longer has them");
  JournalEntry entry;
  entry.type = FrameType::kJournalSkip;
  entry.stream_id = stream->id;
  entry.sequence = last;
  entry.body = WireBytes(skip.SerializeAsString());
  journal_->Append(std::move(entry), [stream](const EntryPrefix& prefix) {
    const MutexLock lock(stream->mutex);
    stream->held = std::max(stream->held, prefix.sequence);
  });
}

bool Intake::NoteFinished(const StreamState& stream, const v1::Batch& batch) {
  size_t finished = 0;
  for (const v1::Progress& progress : batch.progress()) {
    if (!progress.finished()) continue;
    ++finished;
    table_->Release(stream.id, batch.sources(static_cast<int>(progress.source())));
  }
  if (finished > 0 && finished >= stream.ranks.size()) table_->SentGoodbye(stream.id);
  return finished > 0;
}

void Intake::Held(StreamState& stream, uint64_t sequence, bool at_once,
                  const std::string& refused) {
  uint64_t held;
  std::shared_ptr<Connection> connection;
  {
    const MutexLock lock(stream.mutex);
    stream.held = std::max(stream.held, sequence);
    held = stream.held;
    connection = stream.owner.lock();
  }
  if (connection == nullptr) return;
  if (!refused.empty()) connection->OnRefused(sequence, refused);
  connection->OnHeld(held, at_once);
}

}  // namespace plumbline::server
