// The fingerprint of a finding: equal on every host.
#pragma once

#include <string>
#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Returns 32 hex digits over (rule, run, layer, op). Thread-safe.
std::string Fingerprint(std::string_view rule, const v1::FindingSite& site);

}  // namespace plumbline::analysis
