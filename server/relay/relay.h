// plumbd --relay UPSTREAM: the processes of a host share one stream to the upstream server. A relay
// judges and stores nothing; agents connect to it as to a server.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/assembly/server.h"
#include "server/settings/config.h"

namespace plumbline::server {

// Listens on config.grpc and forwards to config.relay_upstream, which need not run yet. Returns
// errors as Server::Start does.
absl::StatusOr<std::unique_ptr<Server>> StartRelay(const Config& config);

}  // namespace plumbline::server
