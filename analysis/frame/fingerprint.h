// A finding's name: the same wherever it is reached.
#pragma once

#include <string>
#include <string_view>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// 32 hex digits over (rule, run, layer, op). Thread-safe.
std::string Fingerprint(std::string_view rule, const v1::FindingSite& site);

}  // namespace plumbline::rules
