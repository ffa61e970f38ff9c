// Progress bars, and counts of epochs and batches that mark a line without a step: "Epoch:
// [3][100/5005]", "Train Epoch: 1 [640/60000 (1%)]", "Train: 0 [50/1251]", "[12]  train-rmse:0.5",
// "Epoch 3, Loss: 2.1". Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/log_text/log_words.h"

namespace plumbline::audit {

// Nothing: the line has no such count. Kind kEpoch if an epoch is all that it counts. `signs`: the
// line's (log_signs.h).
std::optional<LogMark> FindCounter(std::string_view line, uint32_t signs);

// "100%|███| 10/100 [00:01<00:10, 9.1it/s, loss=2.3]": where it stands, and what is in the
// brackets. `mark` is that of its '%'. False: it is no bar.
bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside);

// "100/100 " at the line's beginning, all of an epoch's batches: where what follows begins; 0: it
// is something else.
size_t EpochDone(std::string_view line);

// "41/1563 [>....] - ETA: 4:01 - loss: 2.3", "50/Unknown - 12s - loss: 2.3" of an epoch that goes
// on: where what follows begins, of the last bar on the line, with its batch; 0: something else.
size_t UnfinishedBar(std::string_view line, int64_t* batch);

// The text before a bar, without "100" of its "100%|".
std::string_view WithoutPercent(std::string_view prefix);

}  // namespace plumbline::audit
