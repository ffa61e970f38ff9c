// Watches the file of suppressions: passes its contents on when the file or the day changes, and on
// request.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::server {

// Thread-safe, except Start and destruction.
class SuppressionFile {
 public:
  using Emit = std::function<void(v1::SuppressionSet)>;

  // If `path` is empty, passes an empty set on once.
  SuppressionFile(std::string path, Emit emit) : path_(std::move(path)), emit_(std::move(emit)) {}
  ~SuppressionFile() { Stop(); }

  // Reads the file, passes it on, then watches it. An error names file, line and key; then the file
  // is not watched.
  absl::Status Start();
  void Stop();
  // Reads the file again now. If it has an error, the earlier contents stay, and the error is
  // logged.
  void Reload();

 private:
  struct Stamp {
    int64_t mtime_ns = -1, size = -1;
    uint64_t inode = 0;
    int32_t day = 0;
    bool operator==(const Stamp&) const = default;
  };
  Stamp StampNow() const;
  absl::Status ReadAndReport();
  void Loop();

  const std::string path_;
  const Emit emit_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  bool reload_ PLUMB_GUARDED_BY(mutex_) = false;
  Stamp seen_;  // used by Start, then by the thread
  std::thread thread_;
};

}  // namespace plumbline::server
