// Writes checkpoints on a separate thread, one at a time, and reports on which of them the journal
// may rely.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/journal/checkpoint_file.h"
#include "server/process/counters.h"

namespace plumbline::server {

// Thread-safe, except construction and destruction.
class Checkpointer {
 public:
  // `after_write` runs on the writing thread after each written checkpoint, with the entry of the
  // oldest checkpoint that is kept. `counters` must outlive it.
  Checkpointer(std::string directory, std::string tool_version, Counters* counters,
               std::function<void(uint64_t)> after_write);
  ~Checkpointer();  // waits for the checkpoint that is being written

  // Returns false while a checkpoint is being written.
  bool idle() const { return idle_; }
  // Writes the checkpoint of `entry` that `take` hands to the sink. If `ready` then returns false,
  // the checkpoint is dropped. Both run on the writing thread.
  using Take = std::function<absl::Status(CheckpointSink*)>;
  void Write(uint64_t entry, Take take, std::function<bool()> ready);
  // Return the entry of the newest complete checkpoint, and the time when it was written; 0: none.
  uint64_t last_entry() const { return last_entry_; }
  int64_t last_unix_ns() const { return last_unix_ns_; }
  // Records the checkpoint that a former process wrote.
  void Found(uint64_t entry, int64_t unix_ns) {
    last_entry_ = entry;
    last_unix_ns_ = unix_ns;
  }
  // Waits until the checkpoints handed in are written, then ends the thread.
  void Stop();

 private:
  struct Waiting {
    uint64_t entry = 0;
    Take take;
    std::function<bool()> ready;
  };

  void Loop();
  void WriteOne(const Waiting& waiting);
  absl::Status TakeAndWrite(const Waiting& waiting) const;

  const std::string directory_;
  const std::string tool_version_;
  Counters* const counters_;
  const std::function<void(uint64_t)> after_write_;
  std::atomic<bool> idle_{true};
  std::atomic<uint64_t> last_entry_{0};
  std::atomic<int64_t> last_unix_ns_{0};
  Mutex mutex_;
  CondVar changed_;
  std::optional<Waiting> next_ PLUMB_GUARDED_BY(mutex_);
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
