// Writes checkpoints beside the judge, one at a time, and says which the journal may rely on.
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

// Thread-safe but for construction and destruction.
class Checkpointer {
 public:
  // `after_write` runs on the writing thread after each checkpoint that was written, with the
  // number of the entry that the oldest one kept stands at. `counters` must outlive it.
  Checkpointer(std::string directory, std::string tool_version, Counters* counters,
               std::function<void(uint64_t)> after_write);
  ~Checkpointer();  // waits for the one that is being written

  // Whether a checkpoint would be written now; false while another one is.
  bool idle() const { return idle_; }
  // Writes what `take` hands to the sink, which is of `entry`, if `ready` returns true after it;
  // false: it is left out. Both run on the writing thread.
  using Take = std::function<absl::Status(CheckpointSink*)>;
  void Write(uint64_t entry, Take take, std::function<bool()> ready);
  // The newest that is whole: up to which entry, and when it was written; 0 and 0: none.
  uint64_t last_entry() const { return last_entry_; }
  int64_t last_unix_ns() const { return last_unix_ns_; }
  // One of a former process.
  void Found(uint64_t entry, int64_t unix_ns) {
    last_entry_ = entry;
    last_unix_ns_ = unix_ns;
  }
  // Ends when what was handed in is written.
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
