// Writes the judge's state at one entry, and restores it in another judge.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "server/judge/checkpoint_pieces.h"
#include "server/judge/judge.h"
#include "server/process/log.h"
#include "server/process/process_copy.h"

namespace plumbline::server {
namespace {

constexpr char kEngine[] = "engine";
constexpr char kServer[] = "server";
constexpr char kAhead[] = "ahead";  // runs that are further than the checkpoint's entry
constexpr size_t kPiece = 1 << 20;  // bytes
constexpr std::chrono::seconds kFlushTime{10};
constexpr std::chrono::minutes kCopyTime{10};  // if the copy of the process takes longer, it hangs

std::string Encode(std::map<std::string, uint64_t> ahead) {
  Archive archive;
  archive.Version(1);
  archive(ahead);
  return archive.Take();
}

}  // namespace

void Judge::PersistReports(Archive& archive) {
  const uint32_t version = archive.Version(3, 1);
  // Pointers, because Section cannot know the lock with which it is called.
  auto* runs = &runs_;
  auto* reports = &reports_;
  auto* edits = &edits_;
  archive.Section("runs", [&] { archive(*runs); });
  archive.Section("reports", [&] { archive(*reports); });
  archive.Section("incidents", [&] {
    v1::IncidentBookState state;
    if (!archive.reading()) state = incident_table_->Checkpoint();
    archive(state);
    if (archive.reading() && archive.ok()) incident_table_->Restore(state);
  });
  if (version >= 2) archive.Section("edits", [&] { archive(*edits); });
  if (version < 3) return;
  archive.Section("paces", [&] {
    Liveness::Paces paces;
    if (!archive.reading()) paces = liveness_.AllPaces();
    archive(paces);
    if (archive.reading() && archive.ok()) liveness_.Restore(std::move(paces));
  });
}

v1::RunLabels Judge::LabelsOf(const std::string& run) const {
  const MutexLock lock(mutex_);
  return edits_.Of(run);
}

std::set<std::string> Judge::DeletedRuns() const {
  const MutexLock lock(mutex_);
  return edits_.Deleted();
}

void Judge::TakeCheckpoint(CheckpointSink* sink) {
  const auto part = [sink](const char* name) {
    return [sink, name](std::string_view bytes) { sink->Part(name, bytes); };
  };
  sink->Head(judged_entry_, applied_event_, unix_ns_);
  engine_->Checkpoint(part(kEngine));
  std::vector<KnownRank> ranks;
  {
    Archive archive(part(kServer), kPiece);
    const MutexLock lock(mutex_);
    PersistReports(archive);
    archive.Drain();
    ranks = runs_.Ranks();
  }
  sink->Part(kCheckpointStreams, streams_.Encode(ranks));
  const std::map<std::string, uint64_t> ahead =
      catching_up_ ? restored_ahead_ : fair_queue_.Ahead();
  if (!ahead.empty()) sink->Part(kAhead, Encode(ahead));
}

absl::Status Judge::Restore(const Checkpoint& checkpoint) {
  const auto engine = checkpoint.parts.find(kEngine);
  const auto server = checkpoint.parts.find(kServer);
  if (engine == checkpoint.parts.end() || server == checkpoint.parts.end()) {
    return absl::InvalidArgumentError("a part is missing");
  }
  if (auto s = engine_->Restore(engine->second); !s.ok()) return s;
  Archive archive(server->second);
  const MutexLock lock(mutex_);
  PersistReports(archive);
  archive.End();
  // The engine is restored and the other parts are not, so the caller must start again with a new
  // judge.
  if (!archive.ok()) return absl::DataLossError(archive.error());
  for (const v1::QuarantinedRun& run : quarantine_->List()) engine_->Drop(run.run());
  runs_.DisconnectAll(Now());
  // An older server did not write this part.
  if (const auto streams = checkpoint.parts.find(kCheckpointStreams);
      streams != checkpoint.parts.end() && !streams_.Restore(streams->second)) {
    return absl::DataLossError("streams: cannot be read");
  }
  if (const auto ahead = checkpoint.parts.find(kAhead); ahead != checkpoint.parts.end()) {
    Archive further(ahead->second);
    further.Version(1);
    further(restored_ahead_);
    further.End();
    if (!further.ok()) return absl::DataLossError(further.error());
  }
  unix_ns_ = checkpoint.unix_ns;
  applied_event_ = checkpoint.event;
  (void)checkpoints_.Taken({checkpoint.entry, checkpoint.event});
  return absl::OkStatus();
}

std::map<std::string, uint64_t> Judge::AheadOf(const Checkpoint& checkpoint) {
  std::map<std::string, uint64_t> runs;
  if (const auto ahead = checkpoint.parts.find(kAhead); ahead != checkpoint.parts.end()) {
    Archive further(ahead->second);
    further.Version(1);
    further(runs);
  }
  return runs;
}

// Returns the function that takes the checkpoint. It uses a copy of the process (fork), because
// writing may take seconds. If the process cannot be copied, at the end, and after a failed copy,
// the writing thread takes the checkpoint itself, and this thread waits for *taken. In both cases
// the state is written piece by piece, so that memory never holds a second form of it. No thread
// judges now, so no thread holds a lock of the engine. This thread takes the other locks that
// TakeCheckpoint needs; the copy releases them first.
Checkpointer::Take Judge::CheckpointTaker(std::future<void>* taken)
    PLUMB_NO_THREAD_SAFETY_ANALYSIS {
  if (!copy_failed_.exchange(false) && !stopping()) {
    mutex_.Lock();
    incident_table_->Lock();
    auto copy = ProcessCopy::StartPieces([this](const ProcessCopy::Pieces& write)
                                             PLUMB_NO_THREAD_SAFETY_ANALYSIS {
                                               incident_table_->Unlock();
                                               mutex_.Unlock();
                                               CheckpointSender sender(write);
                                               TakeCheckpoint(&sender);
                                             });
    incident_table_->Unlock();
    mutex_.Unlock();
    if (copy.ok()) {
      return [this, copy = std::shared_ptr<ProcessCopy>(std::move(*copy))](CheckpointSink* sink) {
        CheckpointReceiver receiver(sink);
        absl::Status read =
            copy->Read(kCopyTime, [&](std::string_view bytes) { receiver.Take(bytes); });
        if (read.ok() && !receiver.whole()) read = absl::DataLossError("expected complete pieces");
        if (!read.ok()) copy_failed_ = true;
        return read;
      };
    }
    LogWarning("checkpoint: {}; judging waits until it is written",
               std::string(copy.status().message()));
  }
  auto done = std::make_shared<std::promise<void>>();
  *taken = done->get_future();
  return [this, done](CheckpointSink* sink) {
    TakeCheckpoint(sink);
    done->set_value();
    return absl::OkStatus();
  };
}

// Waits until no work is in progress: the state of a run in the middle of an entry cannot be
// written.
void Judge::CheckpointIfDue() {
  if (checkpointer_ == nullptr || !checkpointer_->idle()) return;
  const auto now = JudgeQueue::Clock::now();
  if (!checkpoints_.Due(now)) return;
  if (fair_queue_.going_on() == 0) {
    HandInCheckpoint();
    fair_queue_.HoldNone();
    checkpoints_.Done(now, JudgeQueue::Clock::now());
  } else if (checkpoints_.impatient(now)) {
    fair_queue_.HoldBackBusy();
  }
}

// Hands in a checkpoint, unless there is nothing new, or a decision could not be written.
void Judge::HandInCheckpoint() {
  const bool news =
      checkpoints_.HasNews({judged_entry_, applied_event_}) || !fair_queue_.Ahead().empty();
  if (checkpointer_ == nullptr || undecided_ || !news) return;
  // Writes an event with a number above all numbers in the checkpoint. If the journal loses its
  // end, the event shows the next start that these numbers were used.
  const std::map<std::string, uint64_t> ahead = fair_queue_.Ahead();
  const bool beyond = std::any_of(ahead.begin(), ahead.end(),
                                  [this](const auto& run) { return run.second > applied_event_; });
  if (beyond && !RecordAhead()) return;
  ahead_reported_ = false;
  const CheckpointSchedule::At at{judged_entry_, applied_event_};
  if (checkpoints_.Taken(at)) held_runs_.CheckpointHandedIn();
  const auto start = JudgeQueue::Clock::now();
  std::future<void> taken;
  Checkpointer::Take take = CheckpointTaker(&taken);
  // A restart does not read the entries before this one, so the store must write their values
  // first.
  const uint64_t ticket = store_->Flush();
  checkpointer_->Write(at.entry, std::move(take),
                       [store = store_, ticket] { return store->WaitFlushed(ticket, kFlushTime); });
  if (taken.valid()) taken.wait();
  const std::chrono::duration<double> took = JudgeQueue::Clock::now() - start;
  LogDebug("checkpoint at entry {}: judging was blocked for {:.3f} s", at.entry, took.count());
}

// Records the names of the runs in progress, which came from a checkpoint and the journal.
void Judge::NoteNames() {
  std::vector<KnownName> names;
  for (const std::string& run : engine_->Runs()) {
    engine_->ForEachName(
        run, [&](const std::string& layer, const std::string& op, const std::string& cause) {
          names.push_back({run, layer, op, cause});
        });
  }
  const MutexLock lock(owners_mutex_);
  names_ = std::move(names);
}

std::vector<KnownName> Judge::TakeNames() {
  const MutexLock lock(owners_mutex_);
  return std::exchange(names_, {});
}

}  // namespace plumbline::server
