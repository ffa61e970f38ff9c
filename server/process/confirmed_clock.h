// The time of day for decisions that delete data: if the clock was set ahead, it is trusted only
// once a later call confirms it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace plumbline::server {

// Not thread-safe.
class ConfirmedClock {
 public:
  using Nanos = std::function<int64_t()>;
  static constexpr int64_t kJump = 60'000'000'000;     // ns ahead of the elapsed time
  static constexpr int64_t kConfirm = 60'000'000'000;  // minimum ns between the two calls

  // `unix_ns`: the time of day. `elapsed_ns`: a monotonic clock that also counts while the host
  // sleeps. By default those of the system.
  ConfirmedClock();
  ConfirmedClock(Nanos unix_ns, Nanos elapsed_ns);

  // Returns the time of day, ns since 1970. If it is more than kJump ahead of the earlier call plus
  // the elapsed time, returns that sum, until a call at least kConfirm later confirms the jump. If
  // the clock is set back, it is trusted at once.
  int64_t Now();

 private:
  Nanos unix_ns_, elapsed_ns_;
  int64_t offset_;  // the trusted time of day minus the elapsed time
  struct Jump {
    int64_t offset = 0, since = 0;
  };
  std::optional<Jump> jump_;  // not trusted yet
};

}  // namespace plumbline::server
