// [alerts] and [[alerts.route]] as they stand in a TOML file.
#pragma once

#include <string>
#include <vector>

#include "server/settings/alert_config.h"
#include "server/settings/config_reader.h"

namespace plumbline::server {

// The keys of [alerts]; that of its routes is only checked to be an array of tables.
keys::Section AlertKeys(AlertConfig* out);
std::vector<std::string> AlertRouteKeys();

// The routes of [alerts]. They take the place of those in `out`.
void ReadAlertRoutes(const std::string& file, const toml::table& table, AlertConfig* out,
                     ConfigMistakes* mistakes);

}  // namespace plumbline::server
