// What a trainer's log says in sentences, apart from its rows: health/run-died of its last lines,
// health/loss-scale of what a loss scaler says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// The verdict on a log, if it does not end well; its steps are the caller's. nullopt: it does, or
// it cannot be read.
std::optional<v1::Verdict> EndingVerdict(const std::string& path, int64_t last_step);

// What its loss scaler says: a note with the count, an error where the scale falls without end.
// nullopt: nothing, or it cannot be read.
std::optional<v1::Verdict> ScalerVerdict(const std::string& path, int64_t last_step);

}  // namespace plumbline::audit
