// Watches the file of suppressions: what it says is told when the file or the day changes, and when
// somebody asks for it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::server {

// Thread-safe but for Start and destruction.
class SuppressionFile {
 public:
  using Tell = std::function<void(v1::SuppressionSet)>;

  // `path` empty: nothing is suppressed, which is told once.
  SuppressionFile(std::string path, Tell tell) : path_(std::move(path)), tell_(std::move(tell)) {}
  ~SuppressionFile() { Stop(); }

  // Reads and tells, then watches. An error names file, line and key; nothing is watched then.
  absl::Status Start();
  void Stop();
  // Read again now. A file that is wrong leaves what was there, and is logged.
  void Reload();

 private:
  struct Stamp {
    int64_t mtime_ns = -1, size = -1;
    uint64_t inode = 0;
    int32_t day = 0;
    bool operator==(const Stamp&) const = default;
  };
  Stamp StampNow() const;
  absl::Status ReadAndTell();
  void Loop();

  const std::string path_;
  const Tell tell_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  bool reload_ PLUMB_GUARDED_BY(mutex_) = false;
  Stamp seen_;  // Start's, then the thread's
  std::thread thread_;
};

}  // namespace plumbline::server
