// Which lines state that a process ended, and how. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/trainer_log/log_ending.h"

namespace plumbline::audit {

struct EndingSign {
  LogEnding::Kind kind = LogEnding::Kind::kKilled;
  std::string_view type;         // "SIGKILL", "SIGSEGV", "time limit", "exit status 1"
  bool by_launcher = false;      // stated by a program that started the process: others know more
  std::optional<uint32_t> rank;  // that it names
};

// A line that states an end by itself: a shell's "Killed", "Segmentation fault (core dumped)", a
// scheduler's "CANCELLED ... DUE TO TIME LIMIT", a launcher's "exits with return code = -9".
std::optional<EndingSign> SignIn(std::string_view line);

// "torch.OutOfMemoryError: CUDA out of memory. ...": a type of Python and what it says.
bool IsException(std::string_view text);
// The same, and an error of a kind that does end a program: no warning, no exit.
bool IsFatalException(std::string_view text);
// A trainer's sentence that it stops because its loss is NaN or infinite: "Loss is nan, stopping
// training".
bool StopsForLoss(std::string_view line);
// "Training complete.": what is printed after it is no end of the run.
bool StatesSuccess(std::string_view line);
// A line of a process that goes on after an exception that it caught: "(retry 1 of 5)", "Upload
// finished".
bool GoesOn(std::string_view text);
// The memory of a GPU or of another accelerator.
bool IsOutOfMemory(std::string_view text);
// The memory of the host, or a process that was killed for it.
bool IsOutOfHostMemory(std::string_view text);

}  // namespace plumbline::audit
