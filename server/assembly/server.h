// plumbd as an object: all components between the sockets and the rules.
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

// Sets the limits of a listener, of a server or a relay, for any client.
void SetLimits(const Config& config, grpc::ServerBuilder* builder);

class Server {
 public:
  virtual ~Server() = default;  // stops

  // Callbacks for supervision; they run on a thread of the server.
  struct Watch {
    std::function<void()> gets_on;  // called every `period` while its threads progress; may be null
    std::chrono::nanoseconds period{0};
    std::function<void(const absl::Status&)> serving;  // called at the start and when it changes
  };

  // Listens and serves. Returns InvalidArgument if the configuration is wrong, Unavailable if it
  // cannot listen on an address.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Watch watch);

  // Returns "127.0.0.1:7433", with the actual port if it was 0.
  virtual std::string grpc_address() const = 0;
  virtual std::string http_address() const = 0;  // empty if HTTP is off

  // Reads files again that may change while it runs (SIGHUP).
  virtual void Reload() {}

  // Ends the streams (agents keep what is not acknowledged), judges the batches that were taken,
  // and stops within a limited time.
  virtual void Stop() = 0;
};

}  // namespace plumbline::server
