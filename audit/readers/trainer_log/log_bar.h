// Progress bars in a line of a log. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "audit/readers/trainer_log/log_words.h"

namespace plumbline::audit {

// "100%|███| 10/100 [00:01<00:10, 9.1it/s, loss=2.3]": where it stands, and what is in the
// brackets. `mark` is that of its '%'. False: it is no bar.
bool ReadBar(std::string_view line, LogMark* mark, std::string_view* inside);

// "100/100 " at the line's beginning, all of an epoch's batches: where what follows begins; 0: it
// is something else.
size_t EpochDone(std::string_view line);

// The text before a bar, without "100" of its "100%|".
std::string_view WithoutPercent(std::string_view prefix);

}  // namespace plumbline::audit
