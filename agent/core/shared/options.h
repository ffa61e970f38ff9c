// The options of a run, and the environment variables that set them.
//
// clang-format off
// | variable                   | default | sets                                                                      |
// |----------------------------|---------|---------------------------------------------------------------------------|
// | PLUMBLINE_DISABLE          |         | 1: nothing is loaded, every call returns at once                 (facade) |
// | PLUMBLINE_RUN              | run     | name of the run                                                  (facade) |
// | PLUMBLINE_SERVER           |         | host:port of plumbd, or unix:PATH                                (facade) |
// | PLUMBLINE_RECORD           |         | directory of run records                                         (facade) |
// | PLUMBLINE_SPOOL            | RECORD/spool | directory of batches not acknowledged yet; off: none        (facade) |
// | PLUMBLINE_ATTEMPT          | 0       | restarts before this one                                         (facade) |
// | PLUMBLINE_EVERY            | 0       | measure each n-th step, ungoverned; 0: cadence and governor      (facade) |
// | PLUMBLINE_BUDGET           | 0.01    | share of step time for the agent; 1: no limit                    (facade) |
// | PLUMBLINE_TRAFFIC_BYTES    | 3072    | evidence bytes a rank-step, averaged over the cadence                     |
// | PLUMBLINE_SAMPLE_MAX_BYTES | 8 MiB   | raw rows kept of one call                                                 |
// | PLUMBLINE_RING_BYTES       | 32 MiB  | memory between the trainer's threads and ours                             |
// | PLUMBLINE_DEVICE_RING_BYTES| 32 MiB  | pinned memory between a GPU and our threads, once a tensor lies on it     |
// | PLUMBLINE_QUEUE_BYTES      | 64 MiB  | evidence kept while the server has not acknowledged it                    |
// | PLUMBLINE_QUEUE_BATCHES    | 4096    | the same, in batches                                                      |
// | PLUMBLINE_SPOOL_BYTES      | 1 GiB   | of one process, on disk                                                   |
// | PLUMBLINE_REDACT           | 0       | 1: token and sequence ids are sent as keyed hashes               (facade) |
// | PLUMBLINE_REDACT_KEY       |         | the key, at least 16 bytes: transport/redact.h                            |
// | PLUMBLINE_TLS_CA, _CERT, _KEY, PLUMBLINE_TOKEN_FILE | | identity: transport/credentials.h                   |
// | PLUMBLINE_CUDA_LIBRARY     |         | path of libplumbline_cuda.so; else next to libplumbline_agent.so          |
// | PLUMBLINE_NVML_LIBRARY     | libnvidia-ml.so.1 | library for a GPU's clocks and errors                           |
// clang-format on
//
// Variables marked (facade) arrive resolved in the options of open; the others are read here, once.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumbline::agent {

enum class Role : int32_t { kTrainer = 1, kRollout = 2 };  // values of v1::Role

struct AgentOptions {
  std::string run;
  std::string server;      // empty: none
  std::string record_dir;  // empty: none
  std::string spool_dir;   // empty: none; not used without a server
  std::string caller;      // "train.py:12", where the run was opened; empty: not known
  Role role = Role::kTrainer;
  uint32_t attempt = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t every = 0;   // 0: the cadence alone decides
  double budget = 0;    // share of step time; 0: kDefaultBudget
  bool redact = false;  // ids are sent as keyed hashes
  int32_t stop_on = 0;  // level of findings that end the training, a v1::Level; 0: none

  uint64_t traffic_bytes = 3072;
  uint64_t sample_max_bytes = 8ull << 20;
  uint64_t ring_bytes = 32ull << 20;         // rounded up to a power of two
  uint64_t device_ring_bytes = 32ull << 20;  // rounded up to a power of two
  uint64_t queue_bytes = 64ull << 20;
  uint64_t queue_batches = 4096;
  uint64_t spool_bytes = 1ull << 30;

  // A batch is sealed at the first of these limits, and at the end of a sampled step.
  uint32_t batch_items = 512;
  uint32_t batch_ms = 100;
  uint64_t batch_bytes = 1ull << 20;
  int64_t batch_steps = 16;  // W/4 of the engine's window

  uint32_t poll_ms = 200;           // interval at which the drain thread reads the ring
  uint32_t backoff_first_ms = 200;  // between attempts to reach the server
  uint32_t backoff_last_ms = 5000;
  uint32_t ack_timeout_ms = 30000;  // a silent server is called again after this time
  uint32_t heartbeat_ms = 1000;
};

// Applies the PLUMBLINE_* variables. Returns InvalidArgument with the variable, its value, and what
// was expected.
absl::Status ApplyEnvironment(AgentOptions* options);

}  // namespace plumbline::agent
