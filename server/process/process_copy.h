// A copy of this process (fork), which writes down what the process knows while the process goes
// on. What the copy sees does not change any more: the kernel copies each page that one of the two
// writes to. Starting it takes some milliseconds for each GiB of memory, however much is to be
// written.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

// Not thread-safe, but may be read and destroyed by another thread than the one that started it.
class ProcessCopy {
 public:
  // Runs `make` in the copy, whose only thread is the calling one's. So `make` must take no lock
  // that another thread may hold at this moment (malloc's apart), and must neither log nor call
  // gRPC. The copy has no file of the process open, is of low priority, and the first to go where
  // memory is short. Unavailable: there can be none, the reason in it.
  static absl::StatusOr<std::unique_ptr<ProcessCopy>> Start(
      const std::function<std::string()>& make);
  // The same for what `make` hands to its argument, piece by piece. A piece that cannot be written,
  // since the process is gone, ends the copy.
  using Pieces = std::function<void(std::string_view)>;
  static absl::StatusOr<std::unique_ptr<ProcessCopy>> StartPieces(
      const std::function<void(const Pieces&)>& make);
  ~ProcessCopy();  // ends it

  // What `make` returned; once. Unavailable when the copy died, threw, or took longer than
  // `patience`, and then it is ended.
  absl::StatusOr<std::string> Read(std::chrono::nanoseconds patience);
  // The same, by pieces of any size as they come. They count when it has returned OK.
  absl::Status Read(std::chrono::nanoseconds patience, const Pieces& take);

 private:
  ProcessCopy(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}
  int Wait();
  void End();

  pid_t pid_;
  int pipe_;
};

}  // namespace plumbline::server
