// The time of day for decisions that delete: a clock that is set ahead is believed at a second
// look.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace plumbline::server {

// Not thread-safe.
class ConfirmedClock {
 public:
  using Nanos = std::function<int64_t()>;
  static constexpr int64_t kJump = 60'000'000'000;     // ns ahead of what has passed
  static constexpr int64_t kConfirm = 60'000'000'000;  // ns between the two looks, at least

  // `unix_ns`: the time of day. `elapsed_ns`: of a clock that nobody sets, which counts while the
  // host sleeps. By default those of the system.
  ConfirmedClock();
  ConfirmedClock(Nanos unix_ns, Nanos elapsed_ns);

  // Returns the time of day, ns since 1970. If it is more than kJump ahead of the former look and
  // what has passed since, returns the former look plus what has passed, until a look kConfirm or
  // more later finds it there again. A clock that is set back is believed at once.
  int64_t Now();

 private:
  Nanos unix_ns_, elapsed_ns_;
  int64_t offset_;  // of the time of day from what has elapsed, as believed
  struct Jump {
    int64_t offset = 0, since = 0;
  };
  std::optional<Jump> jump_;  // not believed yet
};

}  // namespace plumbline::server
