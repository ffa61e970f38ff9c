#include "agent/core/shared/options.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace plumbline::agent {

namespace {

struct Variable {
  const char* name;
  uint64_t AgentOptions::*field;
  uint64_t low;
  uint64_t high;
};

constexpr Variable kVariables[] = {
    {"PLUMBLINE_TRAFFIC_BYTES", &AgentOptions::traffic_bytes, 1, 1ull << 40},
    {"PLUMBLINE_SAMPLE_MAX_BYTES", &AgentOptions::sample_max_bytes, 0, 32ull << 20},
    {"PLUMBLINE_RING_BYTES", &AgentOptions::ring_bytes, 1ull << 16, 1ull << 34},
    {"PLUMBLINE_DEVICE_RING_BYTES", &AgentOptions::device_ring_bytes, 1ull << 16, 1ull << 34},
    {"PLUMBLINE_QUEUE_BYTES", &AgentOptions::queue_bytes, 1ull << 10, 1ull << 40},
    {"PLUMBLINE_QUEUE_BATCHES", &AgentOptions::queue_batches, 1, 1ull << 24},
    {"PLUMBLINE_SPOOL_BYTES", &AgentOptions::spool_bytes, 1ull << 20, 1ull << 44},
};

absl::Status Apply(const Variable& v, const char* text, AgentOptions* options) {
  uint64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < v.low || value > v.high) {
    return absl::InvalidArgumentError(std::string(v.name) + "=" + text +
                                      ": expected an integer from " + std::to_string(v.low) +
                                      " to " + std::to_string(v.high));
  }
  options->*v.field = value;
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyEnvironment(AgentOptions* options) {
  for (const Variable& v : kVariables) {
    const char* text = std::getenv(v.name);
    if (text == nullptr || *text == '\0') continue;
    if (absl::Status s = Apply(v, text, options); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::agent
