// Which texts are logs of trainers, and which only speak of training.
#pragma once

#include <string_view>

namespace plumbline::audit {

// PointFormat.recognise of trainers' logs.
bool IsTrainerLog(std::string_view path, std::string_view head);

}  // namespace plumbline::audit
