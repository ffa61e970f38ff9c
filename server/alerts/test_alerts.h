// plumbd --test-alerts.
#pragma once

#include <string>

#include "server/settings/alert_config.h"

namespace plumbline::server {

// Sends a test notification through every route and waits for each. One line a route, for people;
// `delivered` says whether all of them were.
std::string TestAlerts(const AlertConfig& config, bool* delivered);

}  // namespace plumbline::server
