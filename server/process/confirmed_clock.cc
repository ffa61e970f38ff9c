#include "server/process/confirmed_clock.h"

#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "server/process/log.h"

namespace plumbline::server {

ConfirmedClock::ConfirmedClock()
    : ConfirmedClock([] { return static_cast<int64_t>(UnixNs()); },
                     [] { return static_cast<int64_t>(BootNs()); }) {}

ConfirmedClock::ConfirmedClock(Nanos unix_ns, Nanos elapsed_ns)
    : unix_ns_(std::move(unix_ns)),
      elapsed_ns_(std::move(elapsed_ns)),
      offset_(unix_ns_() - elapsed_ns_()) {}

int64_t ConfirmedClock::Now() {
  const int64_t now = unix_ns_(), elapsed = elapsed_ns_(), offset = now - elapsed;
  if (offset - offset_ <= kJump) {
    offset_ = offset;
    jump_.reset();
    return now;
  }
  // If the time differs from that of the earlier jump, this is a new jump.
  if (!jump_ || std::llabs(offset - jump_->offset) > kJump) {
    jump_ = Jump{offset, elapsed};
    LogWarning(
        "the clock was set {:.1f} hours ahead: nothing is deleted because of its age until a later "
        "check confirms the time",
        static_cast<double>(offset - offset_) / 3.6e12);
  }
  if (elapsed - jump_->since < kConfirm) return elapsed + offset_;
  offset_ = offset;
  jump_.reset();
  return now;
}

}  // namespace plumbline::server
