// Waits for a server that is away: keeps a channel dialling, and polls the channel.
//
// gRPC advances a connection only while a thread polls it. Between two calls no thread does, except
// gRPC's own check each 5 s. So a server that was back after a moment was found after 3 to 14 s.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/connection.h"

namespace plumbline::transport {

// How the ranks of a world spread their dials, so that a server that all of them lost gets some 500
// a second: the time between tries of a rank, and the time within which its first try falls.
// Milliseconds.
struct DialPace {
  uint32_t retry_ms;
  uint32_t spread_ms;  // 0: at once
};
DialPace PaceOf(const StreamConfig& config);

// Not thread-safe.
class Dialer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Dialer(const StreamConfig& config) : config_(config) {}

  // Returns the channel for the next call. Reads the credentials again for each channel, since they
  // may change while a trainer runs, unless Await has just connected this one. Errors as
  // MakeChannel.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Take();

  // Returns true if the channel that was last taken is connected.
  bool Connected() const;

  // Dials and polls until the channel is connected, or until `wanted` returns false; it is called
  // ten times a second. If the server stays unreachable, makes a new channel from time to time, so
  // that names are resolved and credentials are read again. Returns true if connected; the next
  // Take returns this channel.
  bool Await(const std::function<bool()>& wanted);

  // Makes the next Take return a new channel: at the end of a trainer no rank waits for others.
  void Forget() { channel_ = nullptr; }

 private:
  bool MakeAnew();

  const StreamConfig& config_;
  std::shared_ptr<grpc::Channel> channel_;  // null: the next Take makes one
  grpc::CompletionQueue events_;
  bool fresh_ = false;  // true if Await has connected it
};

}  // namespace plumbline::transport
