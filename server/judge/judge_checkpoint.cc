// What a judge knows, written down at one entry and taken over by another.

#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr char kEngine[] = "engine";
constexpr char kServer[] = "server";
constexpr std::chrono::seconds kFlushTime{10};

}  // namespace

void Judge::PersistReports(Archive& archive) {
  archive.Version(1);
  // By pointers: Section does not know of the lock that it is called with.
  auto* runs = &runs_;
  auto* reports = &reports_;
  archive.Section("runs", [&] { archive(*runs); });
  archive.Section("reports", [&] { archive(*reports); });
  archive.Section("incidents", [&] {
    v1::IncidentBookState state;
    if (!archive.reading()) state = book_->Checkpoint();
    archive(state);
    if (archive.reading() && archive.ok()) book_->Restore(state);
  });
}

Checkpoint Judge::TakeCheckpoint() {
  Checkpoint checkpoint;
  checkpoint.entry = judged_entry_;
  checkpoint.event = applied_event_;
  checkpoint.unix_ns = unix_ns_;
  checkpoint.parts[kEngine] = engine_->Checkpoint();
  Archive archive;
  std::vector<KnownRank> ranks;
  {
    const MutexLock lock(mutex_);
    PersistReports(archive);
    ranks = runs_.Ranks();
  }
  checkpoint.parts[kServer] = archive.Take();
  checkpoint.parts[kCheckpointStreams] = streams_.Encode(ranks);
  return checkpoint;
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
  // The engine knows something now and the rest does not: the caller starts over with a new judge.
  if (!archive.ok()) return absl::DataLossError(archive.error());
  for (const v1::QuarantinedRun& run : quarantine_->List()) engine_->Drop(run.run());
  runs_.DisconnectAll(Now());
  // A server before this one did not write it.
  if (const auto streams = checkpoint.parts.find(kCheckpointStreams);
      streams != checkpoint.parts.end() && !streams_.Restore(streams->second)) {
    return absl::DataLossError("streams: cannot be read");
  }
  unix_ns_ = checkpoint.unix_ns;
  applied_event_ = checkpointed_event_ = checkpoint.event;
  checkpointed_entry_ = checkpoint.entry;
  return absl::OkStatus();
}

void Judge::CheckpointIfDue() {
  if (checkpointer_ == nullptr || !checkpointer_->idle()) return;
  const bool bytes = bytes_since_checkpoint_ >= checkpoint_bytes_;
  if (!bytes && JudgeQueue::Clock::now() < next_checkpoint_) return;
  next_checkpoint_ = JudgeQueue::Clock::now() + checkpoint_interval_;
  HandInCheckpoint();
}

// Hands in a checkpoint, unless there is nothing new, or something was decided that nobody kept.
void Judge::HandInCheckpoint() {
  const bool news = judged_entry_ != checkpointed_entry_ || applied_event_ != checkpointed_event_;
  if (checkpointer_ == nullptr || undecided_ || !news) return;
  const auto start = JudgeQueue::Clock::now();
  Checkpoint checkpoint = TakeCheckpoint();
  checkpointed_entry_ = checkpoint.entry;
  checkpointed_event_ = checkpoint.event;
  bytes_since_checkpoint_ = 0;
  const std::chrono::duration<double> took = JudgeQueue::Clock::now() - start;
  LogDebug("checkpoint at entry {} taken in {:.3f} s", checkpoint.entry, took.count());
  // What the store has not written yet would otherwise be told by the entries before this one.
  const uint64_t ticket = store_->Flush();
  checkpointer_->Write(std::move(checkpoint),
                       [store = store_, ticket] { return store->WaitFlushed(ticket, kFlushTime); });
}

}  // namespace plumbline::server
