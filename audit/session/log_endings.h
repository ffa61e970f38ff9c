// Judges the sentences of a trainer's log, apart from its rows: health/run-died from its last
// lines, health/loss-scale from messages of a loss scaler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Returns the verdict on a log that does not end well. The caller sets its steps. If the log ends
// well or cannot be read, returns nullopt.
std::optional<v1::Verdict> EndingVerdict(const std::string& path, int64_t last_step);

// Returns a verdict on messages of a loss scaler: a note with their number, or an error if the
// scale keeps falling. If there are none or the log cannot be read, returns nullopt.
std::optional<v1::Verdict> ScalerVerdict(const std::string& path, int64_t last_step);

}  // namespace plumbline::audit
