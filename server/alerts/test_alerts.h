// Implements plumbd --test-alerts.
#pragma once

#include <string>

#include "server/settings/alert_config.h"

namespace plumbline::server {

// Sends a test notification through every route and waits for each. Returns one line per route, for
// people; `delivered` is true if all were delivered.
std::string TestAlerts(const AlertConfig& config, bool* delivered);

}  // namespace plumbline::server
