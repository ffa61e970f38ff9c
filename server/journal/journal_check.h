// Reads, once after a start, the entries before the checkpoint, which no replay reads. A missing or
// damaged segment there changes no finding, but audits need it. So the damage is reported here, not
// first when an audit fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "server/journal/gap_table.h"

namespace plumbline::server {

struct JournalCheckOptions {
  std::string directory;
  uint64_t last = 0;           // checks entries up to here; all of them are held
  std::function<bool()> busy;  // returns true while more urgent work runs: the check waits
};

// Thread-safe.
class JournalCheck {
 public:
  // `gaps` records the losses and must outlive it.
  JournalCheck(JournalCheckOptions options, GapTable* gaps)
      : options_(std::move(options)), gaps_(gaps) {}
  ~JournalCheck() { Stop(); }

  void Start();
  void Stop();  // at any point; the next start checks again from the beginning

 private:
  void Read();
  bool GoOn();
  void Emit(const LostEntries& lost);

  const JournalCheckOptions options_;
  GapTable* const gaps_;
  std::chrono::steady_clock::time_point rest_at_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
