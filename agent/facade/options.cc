#include "agent/facade/options.h"

#include <locale.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "agent/facade/error.h"
#include "agent/facade/sized.h"
#include "agent/facade/text.h"

namespace plumbline::facade {
namespace {

constexpr int64_t kMaxRanks = 1 << 24;

const char* Environment(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// Parses an integer; returns false and sets the thread's error text on failure.
bool ParseInteger(const char* variable, const char* text, int64_t low, int64_t high, int64_t* out) {
  errno = 0;
  char* end = nullptr;
  const long long value = strtoll(text, &end, 10);
  if (errno == 0 && end != text && *end == '\0' && value >= low && value <= high) {
    *out = value;
    return true;
  }
  Fail(PLUMBLINE_INVALID_ARGUMENT, "open: %s is \"%.64s\"; expected an integer from %lld to %lld",
       variable, text, static_cast<long long>(low), static_cast<long long>(high));
  return false;
}

// Reads the first of `variables` that is set; otherwise *out is unchanged.
bool FromEnvironment(const char* const* variables, int64_t low, int64_t high, int64_t* out) {
  for (; *variables != nullptr; ++variables) {
    if (const char* text = Environment(*variables)) {
      return ParseInteger(*variables, text, low, high, out);
    }
  }
  return true;
}

struct Launcher {
  const char* rank;
  const char* world_size;
};
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}};

// Rank and size come from one launcher, never from two.
bool FromLauncher(int64_t* rank, int64_t* world_size) {
  for (const Launcher& launcher : kLaunchers) {
    const char* rank_text = Environment(launcher.rank);
    const char* size_text = Environment(launcher.world_size);
    if (rank_text == nullptr || size_text == nullptr) continue;
    return ParseInteger(launcher.rank, rank_text, 0, kMaxRanks - 1, rank) &&
           ParseInteger(launcher.world_size, size_text, 1, kMaxRanks, world_size);
  }
  return true;
}

// Given values take precedence over the launcher, separately for each number.
plumbline_status_t ResolveRanks(const plumbline_open_options_t& given,
                                plumbline_agent_open_t* out) {
  int64_t rank = 0;
  int64_t world_size = 1;
  if ((given.rank < 0 || given.world_size < 0) && !FromLauncher(&rank, &world_size)) {
    return PLUMBLINE_INVALID_ARGUMENT;
  }
  if (given.rank >= 0) rank = given.rank;
  if (given.world_size >= 0) world_size = given.world_size;
  if (const plumbline_status_t status = CheckRanks("open", rank, world_size); status < 0)
    return status;
  out->rank = static_cast<uint32_t>(rank);
  out->world_size = static_cast<uint32_t>(world_size);
  return PLUMBLINE_OK;
}

// The number of restarts comes from the program that restarts: ourselves, torchrun, SLURM.
plumbline_status_t ResolveNumbers(const plumbline_open_options_t& given,
                                  plumbline_agent_open_t* out) {
  constexpr const char* kAttempt[] = {"PLUMBLINE_ATTEMPT", "TORCHELASTIC_RESTART_COUNT",
                                      "SLURM_RESTART_COUNT", nullptr};
  constexpr const char* kEvery[] = {"PLUMBLINE_EVERY", nullptr};
  int64_t attempt = 0;
  int64_t every = 0;
  if (given.attempt >= 0) {
    attempt = given.attempt;
  } else if (!FromEnvironment(kAttempt, 0, INT32_MAX, &attempt)) {
    return PLUMBLINE_INVALID_ARGUMENT;
  }
  if (given.every > 0) {
    every = given.every;
  } else if (!FromEnvironment(kEvery, 0, INT32_MAX, &every)) {
    return PLUMBLINE_INVALID_ARGUMENT;
  }
  out->attempt = static_cast<uint32_t>(attempt);
  out->every = static_cast<uint32_t>(every);
  return PLUMBLINE_OK;
}

// Returns -1 if `text` is not a number. The decimal sign is a point in every locale.
double ParseShare(const char* text) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  if (plain == nullptr) return -1.0;
  char* end = nullptr;
  const double value = strtod_l(text, &end, plain);
  freelocale(plain);
  return end != text && *end == '\0' ? value : -1.0;
}

// 0 stays 0, because the agent has the default.
plumbline_status_t ResolveBudget(const plumbline_open_options_t& given,
                                 plumbline_agent_open_t* out) {
  double budget = given.budget;
  const char* source = "budget";
  if (budget == 0.0) {
    if (const char* text = Environment("PLUMBLINE_BUDGET")) {
      source = "PLUMBLINE_BUDGET";
      budget = ParseShare(text);
    }
  }
  if (!(budget >= 0.0 && budget <= 1.0)) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "open: %s is not a share of the step time; expected a number from 0 to 1", source);
  }
  out->budget = budget;
  return PLUMBLINE_OK;
}

// Returns the option, else the variable, else `otherwise`. Owned by the caller, or by the
// environment.
const char* StringOption(const char* given, const char* variable, const char* otherwise) {
  if (given != nullptr) return given;
  const char* value = Environment(variable);
  return value != nullptr ? value : otherwise;
}

// Returns true for unix:PATH or HOST:PORT, like base/address.h, which cannot be used here: its
// string_view may call libstdc++.
bool IsServerAddress(const char* address) {
  if (strncmp(address, "unix:", 5) == 0) return true;
  const char* colon = strrchr(address, ':');
  if (colon == nullptr || colon == address || strchr(address, '/') != nullptr) return false;
  const size_t digits = strspn(colon + 1, "0123456789");
  return digits > 0 && digits <= 5 && colon[1 + digits] == '\0' && atoi(colon + 1) <= 65535;
}

// Resolves names and places. It is an error if neither server nor record is given: nothing would be
// kept.
plumbline_status_t ResolveStrings(const plumbline_open_options_t& given,
                                  plumbline_agent_open_t* out) {
  out->run = StringOption(given.run, "PLUMBLINE_RUN", "run");
  out->server = StringOption(given.server, "PLUMBLINE_SERVER", "");
  out->record = StringOption(given.record, "PLUMBLINE_RECORD", "");
  out->spool = StringOption(given.spool, "PLUMBLINE_SPOOL", nullptr);
  if (out->spool != nullptr && strcmp(out->spool, "off") == 0) out->spool = "";
  out->spool_bytes = given.spool_bytes;
  out->caller = CheckName(given.caller) == NameFault::kNone ? given.caller : nullptr;
  const NameFault fault = CheckName(out->run);
  if (fault != NameFault::kNone) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "open: the run's name %s", Describe(fault));
  }
  if (*out->server != '\0' && !IsServerAddress(out->server)) {
    return Fail(
        PLUMBLINE_INVALID_ARGUMENT,
        "open: server is \"%.200s\"; expected \"host:port\", the address of plumbd's --grpc "
        "(port 7433 by default) with nothing before the host, or \"unix:PATH\"",
        out->server);
  }
  if (*out->server == '\0' && *out->record == '\0') {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "open: neither server nor record is given; expected \"host:port\" of plumbd "
                "(PLUMBLINE_SERVER), a directory for run records (PLUMBLINE_RECORD), or both");
  }
  return PLUMBLINE_OK;
}

plumbline_status_t ResolveRole(const plumbline_open_options_t& given, plumbline_agent_open_t* out) {
  out->role = given.role == 0 ? static_cast<int32_t>(PLUMBLINE_ROLE_TRAINER) : given.role;
  if (out->role != PLUMBLINE_ROLE_TRAINER && out->role != PLUMBLINE_ROLE_ROLLOUT) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "open: role is %d; expected PLUMBLINE_ROLE_TRAINER or PLUMBLINE_ROLE_ROLLOUT",
                given.role);
  }
  return PLUMBLINE_OK;
}

// Option or variable enables it. A weak key is refused here, before anything could be sent.
plumbline_status_t ResolveRedact(const plumbline_open_options_t& given,
                                 plumbline_agent_open_t* out) {
  constexpr const char* kRedact[] = {"PLUMBLINE_REDACT", nullptr};
  constexpr size_t kLeast = 16;
  if (given.redact < 0 || given.redact > 1) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT, "open: redact is %d; expected 0 or 1", given.redact);
  }
  int64_t redact = 0;
  if (!FromEnvironment(kRedact, 0, 1, &redact)) return PLUMBLINE_INVALID_ARGUMENT;
  out->redact = given.redact != 0 || redact != 0;
  const char* key = Environment("PLUMBLINE_REDACT_KEY");
  if (out->redact == 0 || key == nullptr || strlen(key) >= kLeast) return PLUMBLINE_OK;
  return Fail(PLUMBLINE_INVALID_ARGUMENT,
              "open: PLUMBLINE_REDACT_KEY has %zu bytes; expected at least %zu random ones "
              "(openssl rand -hex 32)",
              strlen(key), kLeast);
}

plumbline_status_t ResolveStopOn(const plumbline_open_options_t& given,
                                 plumbline_agent_open_t* out) {
  out->stop_on = given.stop_on;
  if (given.stop_on == 0 || given.stop_on == PLUMBLINE_STOP_ON_WARNING ||
      given.stop_on == PLUMBLINE_STOP_ON_ERROR) {
    return PLUMBLINE_OK;
  }
  return Fail(PLUMBLINE_INVALID_ARGUMENT, "open: stop_on is %d; expected 0, %d or %d",
              given.stop_on, PLUMBLINE_STOP_ON_WARNING, PLUMBLINE_STOP_ON_ERROR);
}

}  // namespace

plumbline_status_t CheckRanks(const char* call, int64_t rank, int64_t world_size) {
  if (rank >= 0 && rank < world_size && world_size <= kMaxRanks) return PLUMBLINE_OK;
  return Fail(PLUMBLINE_INVALID_ARGUMENT,
              "%s: rank %lld of world size %lld; expected 0 <= rank < world_size", call,
              static_cast<long long>(rank), static_cast<long long>(world_size));
}

plumbline_status_t ResolveOptions(const plumbline_open_options_t* given,
                                  plumbline_agent_open_t* resolved) {
  plumbline_open_options_t options = PLUMBLINE_OPEN_OPTIONS_INIT;
  if (given != nullptr && !CopySized("open: options", given, &options)) {
    return PLUMBLINE_INVALID_ARGUMENT;
  }
  *resolved = {};
  resolved->size = sizeof(*resolved);
  // Reports the first error.
  using Part = plumbline_status_t (*)(const plumbline_open_options_t&, plumbline_agent_open_t*);
  constexpr Part kParts[] = {ResolveRole,   ResolveStrings, ResolveRanks, ResolveNumbers,
                             ResolveBudget, ResolveRedact,  ResolveStopOn};
  for (Part part : kParts) {
    const plumbline_status_t status = part(options, resolved);
    if (status != PLUMBLINE_OK) return status;
  }
  return PLUMBLINE_OK;
}

}  // namespace plumbline::facade
