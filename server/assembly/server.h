// plumbd as an object: everything between the sockets and the rules.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/settings/config.h"

namespace grpc {
class ServerBuilder;
}

namespace plumbline::server {

// The version of this build, as BuildVersion() returns it.
std::string Version();

// What a listener, of a server or a relay, takes from anybody.
void SetLimits(const Config& config, grpc::ServerBuilder* builder);

class Server {
 public:
  virtual ~Server() = default;  // stops

  // Who watches it; what is called comes from a thread of the server's.
  struct Watch {
    std::function<void()> gets_on;  // every `period` while its threads do; may be null
    std::chrono::nanoseconds period{0};
    std::function<void(const absl::Status&)> serving;  // at the start and when it changes
  };

  // Listens and serves. InvalidArgument: the configuration is wrong. Unavailable: an address
  // cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Watch watch);

  // "127.0.0.1:7433", with the port that was found for port 0.
  virtual std::string grpc_address() const = 0;
  virtual std::string http_address() const = 0;  // empty when off

  // Reads again what may change while it runs (SIGHUP).
  virtual void Reload() {}

  // Ends the streams (agents keep what is not acknowledged), judges what was taken, stops. Bounded.
  virtual void Stop() = 0;
};

}  // namespace plumbline::server
