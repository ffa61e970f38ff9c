// Is a JSON report what the contract says? Fails the running test, naming the path that is wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plumbline::audit::testing {

// Parses strictly and checks every key, its place and its type; returns the report.
nlohmann::ordered_json CheckReport(const std::string& text);

}  // namespace plumbline::audit::testing
