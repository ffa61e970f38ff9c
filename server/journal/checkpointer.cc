#include "server/journal/checkpointer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// The same priority as the process copy that it reads from: verdicts are more urgent than
// checkpoints.
constexpr int kCheckpointNice = 10;

}  // namespace

Checkpointer::Checkpointer(std::string directory, std::string tool_version, Counters* counters,
                           std::function<void(uint64_t)> after_write)
    : directory_(std::move(directory)),
      tool_version_(std::move(tool_version)),
      counters_(counters),
      after_write_(std::move(after_write)),
      thread_([this] { Loop(); }) {}

Checkpointer::~Checkpointer() { Stop(); }

void Checkpointer::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Checkpointer::Write(uint64_t entry, Take take, std::function<bool()> ready) {
  const MutexLock lock(mutex_);
  idle_ = false;
  next_ = {entry, std::move(take), std::move(ready)};
  changed_.NotifyAll();
}

void Checkpointer::Loop() {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kCheckpointNice);
  for (;;) {
    Waiting waiting;
    {
      MutexLock lock(mutex_);
      changed_.Wait(lock,
                    [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || next_.has_value(); });
      if (!next_) return;
      waiting = std::move(*next_);
      next_.reset();
    }
    WriteOne(waiting);
    const MutexLock lock(mutex_);
    if (!next_) idle_ = true;
  }
}

absl::Status Checkpointer::TakeAndWrite(const Waiting& waiting) const {
  CheckpointWriter writer(directory_, tool_version_);
  if (absl::Status taken = waiting.take(&writer); !taken.ok()) return taken;
  if (!waiting.ready()) return absl::UnavailableError("the store could not write its part");
  return writer.Finish();
}

void Checkpointer::WriteOne(const Waiting& waiting) {
  if (const absl::Status written = TakeAndWrite(waiting); !written.ok()) {
    ++counters_->checkpoint_failures;
    LogError("checkpoint at entry {}: {}; the older ones are kept", waiting.entry,
             std::string(written.message()));
    return;
  }
  Found(waiting.entry, static_cast<int64_t>(UnixNs()));
  ++counters_->checkpoints;
  auto kept = ListCheckpoints(directory_);
  if (kept.ok() && !kept->empty() && after_write_) after_write_(kept->back().entry);
}

}  // namespace plumbline::server
