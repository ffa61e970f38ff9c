// How a client finds a server that is away: it keeps a channel dialling, and somebody polls it.
//
// gRPC moves a connection on only while a thread polls for it; between two calls nobody does, but
// for its own look each 5 s. A server that was back after a moment was so found after 3 to 14 s.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/connection.h"

namespace plumbline::transport {

// How long after each other the ranks of a world dial, so that a server that all of them lost is
// asked by some 500 a second: how often each of them tries, and within what time its first try
// falls. Milliseconds.
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

  // The channel for the next call. Credentials are read anew for each, since they are changed while
  // a trainer runs, unless Await has just connected this one. Errors as MakeChannel.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Take();

  // Is the channel that was last taken connected?
  bool Connected() const;

  // Dials until the channel is connected, polling all the while, or `wanted` says no: it is asked
  // ten times a second. One that stays unreachable is made anew now and then, so that names are
  // resolved and credentials are read again. True: connected; the next Take gives this channel.
  bool Await(const std::function<bool()>& wanted);

  // What Take does next is begin anew: at the end of a trainer nobody waits for other ranks.
  void Forget() { channel_ = nullptr; }

 private:
  bool MakeAnew();

  const StreamConfig& config_;
  std::shared_ptr<grpc::Channel> channel_;  // null: to be made
  grpc::CompletionQueue events_;
  bool fresh_ = false;  // Await has connected it
};

}  // namespace plumbline::transport
