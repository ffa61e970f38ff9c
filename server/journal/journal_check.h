// Reads once, after a start, what no replay reads: the entries behind the checkpoint. A segment
// that is missing or damaged there takes nothing from what was found, but audits need it, so it is
// said when it is seen and not when somebody asks.
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
  uint64_t last = 0;           // entries up to here; all of them are held
  std::function<bool()> busy;  // who must not wait is at work: the check waits
};

// Thread-safe.
class JournalCheck {
 public:
  // `gaps` must outlive it: it is told what is lost.
  JournalCheck(JournalCheckOptions options, GapTable* gaps)
      : options_(std::move(options)), gaps_(gaps) {}
  ~JournalCheck() { Stop(); }

  void Start();
  void Stop();  // wherever it is; the next start begins anew

 private:
  void Read();
  bool GoOn();
  void Tell(const LostEntries& lost);

  const JournalCheckOptions options_;
  GapTable* const gaps_;
  std::chrono::steady_clock::time_point rest_at_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
