// A copy of this process (fork) that writes down its state while the process continues. The state
// in the copy no longer changes, because the kernel copies each page to which one of the two
// processes writes. The start takes some milliseconds per GiB of memory, for any size of the
// output.
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

// Not thread-safe. One thread may start it, and another thread may read and destroy it.
class ProcessCopy {
 public:
  // Runs `make` in the copy, whose only thread is the caller's. So `make` must take no lock that
  // another thread may hold at this moment (except malloc's), and must neither log nor call gRPC.
  // The copy has no file of the process open, a low priority, and is the first to be killed if
  // memory is short. Returns Unavailable with the reason if no copy can be made.
  static absl::StatusOr<std::unique_ptr<ProcessCopy>> Start(
      const std::function<std::string()>& make);
  // Does the same for pieces that `make` passes to its argument. If a piece cannot be written,
  // because the process is gone, the copy ends.
  using Pieces = std::function<void(std::string_view)>;
  static absl::StatusOr<std::unique_ptr<ProcessCopy>> StartPieces(
      const std::function<void(const Pieces&)>& make);
  ~ProcessCopy();  // ends the copy

  // Returns what `make` returned; call once. Returns Unavailable if the copy died, threw, or took
  // longer than `patience`; then ends the copy.
  absl::StatusOr<std::string> Read(std::chrono::nanoseconds patience);
  // Does the same, in pieces of any size as they arrive. They are valid only if it returns OK.
  absl::Status Read(std::chrono::nanoseconds patience, const Pieces& take);

 private:
  ProcessCopy(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}
  int Wait();
  void End();

  pid_t pid_;
  int pipe_;
};

}  // namespace plumbline::server
