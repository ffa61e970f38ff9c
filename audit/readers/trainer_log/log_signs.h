// Finds, in one pass, the words of a line that may begin a count or a sentence. Most lines of a log
// have none, so this saves the searches for them. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace plumbline::audit {

enum LineSign : uint32_t {
  kSignEpoch = 1,     // "epoch", "ep."
  kSignPhase = 2,     // "train", "val", "test", "eval"
  kSignCount = 4,     // "batch", "episode", "timestep", "generation", "round", "progress", "i="
  kSignAfter = 8,     // "after"
  kSignResume = 16,   // "resum...", "restor...", "continuing t...", "loaded ch..."
  kSignCapacity = 32  // "total capacity"
};

// Returns the union of the signs in the line's first KiB.
uint32_t SignsIn(std::string_view line);

}  // namespace plumbline::audit
