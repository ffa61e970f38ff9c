// Distinguishes logs of trainers from texts that only mention training.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// PointFormat.recognise for trainers' logs.
bool IsTrainerLog(std::string_view path, std::string_view head);

// Returns the names of series on lines with a step, separated by commas, at most eight. Returns ""
// if one of the names belongs to a training, or if there are fewer than three such lines.
std::string OtherSeriesIn(std::string_view head);

}  // namespace plumbline::audit
