// Checks a JSON report against the contract. Fails the running test with the path of the error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plumbline::audit::testing {

// Parses strictly and checks every key, its position and its type; returns the report.
nlohmann::ordered_json CheckReport(const std::string& text);

}  // namespace plumbline::audit::testing
