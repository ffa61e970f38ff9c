// Recognises lines that state how a process ended. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/trainer_log/log_ending.h"

namespace plumbline::audit {

struct EndingSign {
  LogEnding::Kind kind = LogEnding::Kind::kKilled;
  std::string_view type;  // "SIGKILL", "SIGSEGV", "time limit", "exit status 1"
  // The launcher of the process states it, so other lines may have more details.
  bool by_launcher = false;
  std::optional<uint32_t> rank;  // rank that the line names
};

// Returns the end that a single line states: a shell's "Killed" or "Segmentation fault (core
// dumped)", a scheduler's "CANCELLED ... DUE TO TIME LIMIT", a launcher's "exits with return code =
// -9".
std::optional<EndingSign> SignIn(std::string_view line);

// True for a Python exception's type and message: "torch.OutOfMemoryError: CUDA out of memory.
// ...".
bool IsException(std::string_view text);
// The same, but only for errors that end a program. Excludes warnings and exits.
bool IsFatalException(std::string_view text);
// True if a trainer states that it stops because its loss is NaN or infinite: "Loss is nan,
// stopping training".
bool StopsForLoss(std::string_view line);
// True if a trainer states that a value is NaN or infinite, and continues: "NaN or Inf detected in
// loss, recovering from last.pt (attempt 1/3)..." (Ultralytics).
bool ReportsNotFinite(std::string_view line);
// True for "Training complete.": lines after it do not end the run.
bool StatesSuccess(std::string_view line);
// True for a line of a process that continues after an exception that it caught: "(retry 1 of 5)",
// "Upload finished".
bool GoesOn(std::string_view text);
// True if the memory of a GPU or another accelerator was exhausted.
bool IsOutOfMemory(std::string_view text);
// True if the memory of the host was exhausted, or a process was killed for this reason.
bool IsOutOfHostMemory(std::string_view text);

}  // namespace plumbline::audit
