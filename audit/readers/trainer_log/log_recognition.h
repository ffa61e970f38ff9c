// Which texts are logs of trainers, and which only speak of training.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// PointFormat.recognise of trainers' logs.
bool IsTrainerLog(std::string_view path, std::string_view head);

// Returns the names of series on lines with a step, parted by commas, if none of them is of a
// training; at most eight. Empty: there is no such line, or two at most.
std::string OtherSeriesIn(std::string_view head);

}  // namespace plumbline::audit
