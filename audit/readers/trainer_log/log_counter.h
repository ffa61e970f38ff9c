// Finds progress bars, and counts of epochs and batches in lines without a step: "Epoch:
// [3][100/5005]", "Train Epoch: 1 [640/60000 (1%)]", "Train: 0 [50/1251]", "[12]  train-rmse:0.5",
// "Epoch 3, Loss: 2.1". Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/log_text/log_words.h"

namespace plumbline::audit {

// Returns nullopt if the line has no such count. The kind is kEpoch if the line counts only epochs.
// `signs` are the signs of the line (log_signs.h).
std::optional<LogMark> FindCounter(std::string_view line, uint32_t signs);

// Reads the progress of a bar "100%|███| 10/100 [00:01<00:10, 9.1it/s, loss=2.3]" and the text
// inside its brackets. `mark` is the mark of its '%'. Returns false if the text is not a bar.
bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside);

// Returns the end of "100/100 " at the line's beginning, which shows that all batches of an epoch
// are done. Returns 0 for other lines.
size_t EpochDone(std::string_view line);

// Returns the end of the last bar of an unfinished epoch, "41/1563 [>....] - ETA: 4:01 - loss: 2.3"
// or "50/Unknown - 12s - loss: 2.3", and sets its batch; 0 for other lines.
size_t UnfinishedBar(std::string_view line, int64_t* batch);

// Returns the text before a bar, without "100" of its "100%|".
std::string_view WithoutPercent(std::string_view prefix);

}  // namespace plumbline::audit
