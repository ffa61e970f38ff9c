#include "transport/dialer.h"

#include <algorithm>
#include <utility>

#include "base/address.h"

namespace plumbline::transport {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kDialsPerSecond = 500;
constexpr uint32_t kNoCrowd = 64;           // so many may dial at once
constexpr uint32_t kLongestSpread = 20000;  // within the grace that a server gives
constexpr milliseconds kLook{100};
// How long a channel may try in vain before another one begins, with names resolved again. With
// credentials always the first: files are changed to mend what failed. Else longer each time, so
// that a slow handshake (a server that ten thousand dial) is not cut off for ever.
constexpr milliseconds kFirstPatience{5000};
constexpr milliseconds kLastPatience{30000};

}  // namespace

DialPace PaceOf(const StreamConfig& config) {
  // Whoever listens on a socket file is of this host, and so are all that dial it.
  const bool alone = config.reconnecting <= kNoCrowd || IsSocketPath(config.target);
  const uint64_t spread =
      alone ? 0
            : std::min<uint64_t>(uint64_t{config.reconnecting} * 1000 / kDialsPerSecond,
                                 kLongestSpread);
  return {std::max(config.backoff_first_ms, static_cast<uint32_t>(spread)),
          static_cast<uint32_t>(spread)};
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Dialer::Take() {
  const bool read_again = config_.credentials.any() && !std::exchange(fresh_, false);
  if (channel_ == nullptr || read_again) {
    auto channel = MakeChannel(config_);
    if (!channel.ok()) {
      channel_ = nullptr;
      return channel.status();
    }
    channel_ = *std::move(channel);
  }
  return channel_;
}

bool Dialer::Connected() const {
  return channel_ != nullptr && channel_->GetState(false) == GRPC_CHANNEL_READY;
}

// False: not with these credentials; the old channel goes on.
bool Dialer::MakeAnew() {
  auto channel = MakeChannel(config_);
  if (!channel.ok()) return false;
  channel_ = *std::move(channel);
  return true;
}

bool Dialer::Await(const std::function<bool()>& wanted) {
  if (channel_ == nullptr && !MakeAnew()) return false;
  const milliseconds least{2 * PaceOf(config_).retry_ms};
  milliseconds patience = std::max(kFirstPatience, least);
  Clock::time_point enough = Clock::now() + patience;
  while (wanted()) {
    const grpc_connectivity_state state = channel_->GetState(true);
    if (state == GRPC_CHANNEL_READY) return fresh_ = true;
    if (Clock::now() >= enough) {
      MakeAnew();
      if (!config_.credentials.any())
        patience = std::min(2 * patience, std::max(kLastPatience, least));
      enough = Clock::now() + patience;
      continue;
    }
    channel_->NotifyOnStateChange(state, std::chrono::system_clock::now() + kLook, &events_, this);
    void* tag = nullptr;
    bool ok = false;
    events_.Next(&tag, &ok);  // polls; comes back by the deadline at the latest
  }
  return false;
}

}  // namespace plumbline::transport
