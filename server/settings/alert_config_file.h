// Reads [alerts] and [[alerts.route]] from a TOML file.
#pragma once

#include <string>
#include <vector>

#include "server/settings/alert_config.h"
#include "server/settings/config_reader.h"

namespace plumbline::server {

// Returns the keys of [alerts]. That of its routes is only checked to be an array of tables.
keys::Section AlertKeys(AlertConfig* out);
std::vector<std::string> AlertRouteKeys();

// Reads the routes of [alerts], which replace those in `out`.
void ReadAlertRoutes(const std::string& file, const toml::table& table, AlertConfig* out,
                     ConfigMistakes* mistakes);

}  // namespace plumbline::server
