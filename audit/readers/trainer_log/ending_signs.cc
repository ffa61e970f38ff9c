#include "audit/readers/trainer_log/ending_signs.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <system_error>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

using EndKind = LogEnding::Kind;

bool StatesAny(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

// A text in a line, and the end of the process that it indicates.
struct Phrase {
  std::string_view text;
  EndKind kind;
  std::string_view type;
};
constexpr Phrase kPhrases[] = {
    {"DUE TO TIME LIMIT", EndKind::kCancelled, "time limit"},
    {"DUE TO PREEMPTION", EndKind::kCancelled, "preemption"},
    {"CANCELLED AT ", EndKind::kCancelled, "cancelled"},
    {"SIGTERM death signal", EndKind::kCancelled, "SIGTERM"},
    {"oom-kill", EndKind::kKilled, "SIGKILL"},
    {"oom_kill", EndKind::kKilled, "SIGKILL"},
    {"OOMKilled", EndKind::kKilled, "SIGKILL"},
    {"Segmentation fault", EndKind::kCrash, "SIGSEGV"},
    {"Bus error (core dumped)", EndKind::kCrash, "SIGBUS"},
    {"Unexpected bus error encountered in worker", EndKind::kCrash, "SIGBUS"},
    {"Aborted (core dumped)", EndKind::kCrash, "SIGABRT"},
    {"Floating point exception (core dumped)", EndKind::kCrash, "SIGFPE"},
    {"Illegal instruction (core dumped)", EndKind::kCrash, "SIGILL"},
    {"Fatal Python error: ", EndKind::kCrash, "fatal error"},
    {"terminate called after throwing an instance of", EndKind::kCrash, "SIGABRT"},
    {"terminate called without an active exception", EndKind::kCrash, "SIGABRT"},
    {"' panicked at ", EndKind::kCrash, "panic"},
    {"[CUDA ERROR] at file", EndKind::kCrash, "CUDA error"},
    {"GPU has fallen off the bus", EndKind::kCrash, "Xid 79"}};

// A launcher prints the exit status or the signal of its process after these texts.
constexpr std::string_view kStatusLagging[] = {"ited with exit code ",
                                               "terminated with exit code ",
                                               "completed with exit code ",
                                               "exits with return code = ",
                                               "(exitcode: ",
                                               "exited with return code ",
                                               "exited with non-zero status ",
                                               "Exited with code "};

std::optional<int64_t> StatusAt(std::string_view text) {
  int64_t status = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), status);
  return error == std::errc() && end != text.data() ? std::optional(status) : std::nullopt;
}

std::optional<uint32_t> WordNumber(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> number = StatusAt(line.substr(at + word.size()));
  if (!number || *number < 0 || *number > 1 << 20) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

// Returns the end by a signal's number. The caller has removed the 128 that shells add, and the
// sign that Python adds.
EndingSign BySignal(int64_t signal) {
  switch (signal) {
    case 9:
      return {EndKind::kKilled, "SIGKILL"};
    case 15:
      return {EndKind::kCancelled, "SIGTERM"};
    case 11:
      return {EndKind::kCrash, "SIGSEGV"};
    case 7:
      return {EndKind::kCrash, "SIGBUS"};
    case 6:
      return {EndKind::kCrash, "SIGABRT"};
    default:
      return {EndKind::kCrash, "a signal"};
  }
}

std::optional<EndingSign> OfLauncher(std::string_view line) {
  std::optional<EndingSign> sign;
  for (const std::string_view words : kStatusLagging) {
    const size_t at = line.find(words);
    if (sign || at == std::string_view::npos) continue;
    const std::optional<int64_t> status = StatusAt(line.substr(at + words.size()));
    if (!status || *status == 0) continue;
    if (*status < 0) {
      sign = BySignal(-*status);
    } else if (*status > 128 && *status < 160) {
      sign = BySignal(*status - 128);
    } else {
      sign = EndingSign{EndKind::kException, "exit status"};
    }
  }
  if (!sign) {
    if (const auto signal = WordNumber(line, "exited on signal ")) sign = BySignal(*signal);
  }
  if (!sign) return std::nullopt;
  sign->by_launcher = true;
  for (const std::string_view words : {": task ", "process rank ", "local_rank: "}) {
    if (!sign->rank) sign->rank = WordNumber(line, words);
  }
  return sign;
}

// True for a shell's message about a process that got SIGKILL.
bool IsShellKill(std::string_view line) {
  if (line == "Killed" || line.ends_with(" Killed") || line.find(" Killed  ") != line.npos ||
      line.starts_with("zsh: killed "))
    return true;
  const size_t close = line.starts_with('[') ? line.find(']') : std::string_view::npos;
  return close != std::string_view::npos && close < 8 && line.find(" killed  ") != line.npos;
}

}  // namespace

bool IsException(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (name.empty() || name.find(' ') != std::string_view::npos) return false;
  const std::string_view last =
      name.substr(name.rfind('.') == std::string_view::npos ? 0 : name.rfind('.') + 1);
  return !last.empty() && last[0] >= 'A' && last[0] <= 'Z' &&
         (last.ends_with("Error") || last.ends_with("Exception") || last.ends_with("Interrupt") ||
          last.ends_with("Exit") || last.ends_with("Warning") || last == "StopIteration");
}

bool IsFatalException(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  return text.size() > name.size() && IsException(text) &&
         (name.ends_with("Error") || name.ends_with("Exception"));
}

bool StopsForLoss(std::string_view line) {
  constexpr size_t kMostSentence = 300;
  if (line.size() > kMostSentence) return false;
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (StatesAny(lower, {"invalid loss, terminating training", "model diverged with loss",
                        "minimum loss scale reached"}))
    return true;
  if (StatesAny(lower, {"is not finite. "}) && StatesAny(lower, {"signaling trainer to stop"}))
    return true;
  const bool not_finite =
      StatesAny(lower, {"loss is nan", "loss is inf", "nan detected in loss", "nan in loss",
                        "nan loss", "inf loss", "loss became nan", "loss was nan", "loss = nan"});
  return not_finite && StatesAny(lower, {"stopping", "aborting", "abort!", "terminating", "exiting",
                                         "quitting", "halting"});
}

bool ReportsNotFinite(std::string_view line) {
  constexpr size_t kMostSentence = 200;
  return line.size() <= kMostSentence &&
         StatesAny(line, {"NaN or Inf detected in loss", "NaN or Inf found in input tensor"});
}

bool StatesSuccess(std::string_view line) {
  constexpr size_t kMostSentence = 200;
  if (line.size() > kMostSentence) return false;
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return StatesAny(lower, {"training complete", "training finished", "training is complete",
                           "training done", "finished training", "training has finished",
                           "training completed", "done training"}) &&
         !StatesAny(lower, {"not ", "before", "until", "fail", "error", "when ", "if ", "after "});
}

bool GoesOn(std::string_view text) {
  return StatesAny(text, {"retry", "Retry", "retrying", "finished", "Finished", "Done", "done.",
                          "completed", "Completed", "succeeded", "Succeeded"}) &&
         !StatesAny(text, {"exit code", "exitcode", "exited"});
}

bool IsOutOfHostMemory(std::string_view text) {
  return StatesAny(text, {"running low on memory", "is killed by signal: Killed",
                          "Cannot allocate memory", "DefaultCPUAllocator: can't allocate memory"});
}

bool IsOutOfMemory(std::string_view text) {
  return !IsOutOfHostMemory(text) &&
         StatesAny(text, {"CUDA out of memory", "OutOfMemoryError", "HIP out of memory",
                          "CUDA error: out of memory", "RESOURCE_EXHAUSTED",
                          "ResourceExhaustedError", "OOM when allocating", "CUBLAS_STATUS_ALLOC"});
}

std::optional<EndingSign> SignIn(std::string_view line) {
  constexpr size_t kMostLine = 2048;
  if (line.size() > kMostLine) return std::nullopt;
  Trim(&line, kSpaces, kSpaces);
  if (IsShellKill(line)) return EndingSign{EndKind::kKilled, "SIGKILL"};
  for (const Phrase& phrase : kPhrases) {
    if (line.find(phrase.text) == std::string_view::npos) continue;
    EndingSign sign{phrase.kind, phrase.type};
    sign.by_launcher = phrase.type == "SIGTERM";
    return sign;
  }
  return OfLauncher(line);
}

}  // namespace plumbline::audit
