// Finds how a trainer's log ends, if it does not end well: an uncaught exception, exhausted memory,
// a collective that timed out, a kill. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

struct LogEnding {
  // kCrash: a signal that the process itself caused, an abort, a panic. kCancelled: a scheduler or
  // a person stopped it. kNotFinite: the trainer stopped because its loss is NaN or infinite.
  enum class Kind : uint8_t {
    kException,
    kOutOfMemory,
    kTimeout,
    kKilled,
    kCrash,
    kCancelled,
    kNotFinite
  };
  Kind kind = Kind::kException;
  bool by_launcher = false;      // only a launcher's report states it
  std::string type;              // "RuntimeError", "SIGKILL"
  std::string message;           // its line, truncated to 300 bytes
  std::optional<uint32_t> rank;  // rank that printed it first

  // For a time-out: the collective that waited, and the ranks that did not join it.
  uint64_t sequence = 0;
  std::string op;
  std::vector<uint32_t> waiting;  // ranks that reported it
  std::vector<uint32_t> missing;  // ranks whose last enqueued work precedes it
};

// Returns the ending of a log whose last lines are `tail`. Returns nullopt if it ends well, or if
// training continued.
std::optional<LogEnding> EndingOf(std::string_view tail);

}  // namespace plumbline::audit
