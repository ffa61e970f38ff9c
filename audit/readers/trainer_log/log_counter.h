// Counts of epochs and batches that mark a line without a step: "Epoch: [3][100/5005]", "Train
// Epoch: 1 [640/60000 (1%)]", "Train: 0 [50/1251]", "[12]  train-rmse:0.5", "Epoch 3, Loss: 2.1".
#pragma once

#include <optional>
#include <string_view>

#include "audit/readers/trainer_log/log_words.h"

namespace plumbline::audit {

// Nothing: the line has no such count. Kind kEpoch if an epoch is all that it counts.
std::optional<LogMark> FindCounter(std::string_view line);

}  // namespace plumbline::audit
