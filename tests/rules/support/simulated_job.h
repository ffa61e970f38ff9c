// Ranks that train together, as their traces show it: the injector of the rules on time. A step
// consists of the host's first work, computing, and a collective that ends for all at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

struct JobSpec {
  int ranks = 8;
  int steps = 16;
  int kernels = 40;         // per step
  double compute_ms = 180;  // per step
  double transfer_ms = 8;   // of the collective at the end of a step, for the last rank to arrive
  double spread = 0.02;     // of speed, between ranks (normal)
  double jitter = 0.05;     // of computing, between steps
  double stray_gaps = 1;    // per step, at random places, from 1 ms to stray_ms
  double stray_ms = 4;
  // The host's activity before every n-th step, while nothing runs on the GPU.
  std::string stall;  // "loader" "gc" "checkpoint" "compile" "sync" "silent"; "": none
  double stall_ms = 30;
  int stall_every = 1;
  int stall_rank = -1;  // -1 means every rank
  int slow_rank = -1;   // rank that computes more slowly
  int late_rank = -1;   // rank whose host begins each step later by late_ms
  double slow = 1.6;
  double late_ms = 120;
  int stages = 1;  // of a pipeline; a rank's stage is rank % stages
  int slow_stage = -1;
  int micro_batches = 0;  // with stages: micro-batches make them begin and end after one another
  double collective_mib = 0;  // size of the sum at the end of a step; 0: kernels do not record it
  std::string collective = "all_reduce";
  int reported_ranks = 0;  // number of ranks with a trace; 0 means all
  double launch_us = 0;    // delay of each kernel's launch for which the GPU waits
  // Report of the driver of the slow rank's GPU: "heat", "power" (at its cap), "ecc", "xid"; "heat
  // everywhere": on all ranks. "": no report.
  std::string driver;
  bool hidden = true;    // communication runs during computation
  bool alone = false;    // there is no communication
  bool marks = true;     // of steps
  bool launches = true;  // are recorded
  bool gpu = true;       // events are recorded
  std::string poison;    // "huge": times beyond any clock; "parts": a part longer than the whole;
                         // "moved": invalid values of collectives
  uint64_t seed = 1;
};

// Sets one field, such as "ranks = 8". Throws std::runtime_error if the key is unknown.
void Set(JobSpec& spec, const std::string& key, const std::string& value);

// Returns the columns by rank.
std::vector<timeline::Columns> SimulatedJob(const JobSpec& spec);
// Returns the same, reduced, as a reader does.
v1::Batch JobRun(const JobSpec& spec);

}  // namespace plumbline::rules::testing
