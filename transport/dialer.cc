#include "transport/dialer.h"

#include <algorithm>
#include <utility>

#include "base/address.h"

namespace plumbline::transport {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kDialsPerSecond = 500;
constexpr uint32_t kNoCrowd = 64;           // up to this number may dial at once
constexpr uint32_t kLongestSpread = 20000;  // within the grace that a server gives
constexpr milliseconds kLook{100};
// How long a channel may fail to connect before a new one is made and names are resolved again.
// With credentials it is always the first value, because the user may change the files to fix the
// failure. Without, it grows each time, so that a slow handshake (of a server that ten thousand
// clients dial) can complete.
constexpr milliseconds kFirstPatience{5000};
constexpr milliseconds kLastPatience{30000};

}  // namespace

DialPace PaceOf(const StreamConfig& config) {
  // A socket file is used only by processes of this host.
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

// Makes a new channel. Returns false, and keeps the old one, if the credentials cannot be used.
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
    events_.Next(&tag, &ok);  // polls; returns by the deadline at the latest
  }
  return false;
}

}  // namespace plumbline::transport
