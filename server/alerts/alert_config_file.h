// [alerts] and [[alerts.route]] as they stand in a TOML file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/alerts/alert_config.h"
#include "server/config_reader.h"

namespace plumbline::server {

// The keys of [alerts]; that of its routes is only checked to be an array of tables.
keys::Section AlertKeys(AlertConfig* out);
std::vector<std::string> AlertRouteKeys();

// The routes of a table that AlertKeys has passed. They take the place of those in `out`.
absl::Status ReadAlertRoutes(const std::string& path, const toml::table& table, AlertConfig* out);

}  // namespace plumbline::server
