// How a trainer's log ends, where it does not end well: an exception that nobody caught, memory
// that ran out, a collective that timed out, a kill. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

struct LogEnding {
  // kCrash: a signal that the process brought upon itself, an abort, a panic. kCancelled: by a
  // scheduler or by whoever stopped it. kNotFinite: the trainer stopped because its loss is NaN.
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
  std::string message;           // its line, at most 300 bytes
  std::optional<uint32_t> rank;  // that printed it first

  // Of a time-out: the collective that waited, and who did not come to it.
  uint64_t sequence = 0;
  std::string op;
  std::vector<uint32_t> waiting;  // ranks that reported it
  std::vector<uint32_t> missing;  // ranks whose last enqueued work lies before it
};

// `tail`: the end of a log, whole lines. nullopt: it ends well, or training went on after that.
std::optional<LogEnding> EndingOf(std::string_view tail);

}  // namespace plumbline::audit
