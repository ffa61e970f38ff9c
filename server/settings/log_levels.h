// The words of log.level and --log-level, the most verbose first.
#pragma once

#include <string>
#include <vector>

namespace plumbline::server {

inline std::vector<std::string> LogLevels() {
  return {"trace", "debug", "info", "warning", "error", "off"};
}

}  // namespace plumbline::server
