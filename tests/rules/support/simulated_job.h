// Ranks that train together, as traces of all of them would show it: the injector of the rules on
// time. A step is what the host does first, computing, and a collective that ends for all at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct JobSpec {
  int ranks = 8;
  int steps = 16;
  int kernels = 40;         // a step
  double compute_ms = 180;  // a step
  double transfer_ms = 8;   // of the collective that ends a step, for the last that arrives
  double spread = 0.02;     // of speed, between ranks (normal)
  double jitter = 0.05;     // of computing, between steps
  double stray_gaps = 1;    // a step, at random places, from 1 ms to stray_ms
  double stray_ms = 4;
  // What the host does before every n-th step, while nothing runs on the GPU.
  std::string stall;  // "loader" "gc" "checkpoint" "compile" "sync" "silent"; "": nothing
  double stall_ms = 30;
  int stall_every = 1;
  int stall_rank = -1;  // -1: every rank
  int slow_rank = -1;   // computes more slowly
  int late_rank = -1;   // whose host begins each step so much later
  double slow = 1.6;
  double late_ms = 120;
  int stages = 1;  // of a pipeline; a rank's stage is rank % stages
  int slow_stage = -1;
  int micro_batches = 0;  // with stages: they begin and end after one another, as these make them
  double collective_mib = 0;  // what the collective that ends a step sums; 0: kernels do not say
  std::string collective = "all_reduce";
  int told_ranks = 0;    // of as many ranks there is a trace; 0: of all
  double launch_us = 0;  // the GPU waits so long for each kernel's launch
  // What the driver of the slow rank's GPU says: "heat", "power" (at its cap), "ecc", "xid"; "heat
  // everywhere": all ranks' do. "": nobody is asked.
  std::string driver;
  bool hidden = true;    // communication under computation
  bool alone = false;    // nothing communicates
  bool marks = true;     // of steps
  bool launches = true;  // are recorded
  bool gpu = true;       // events are recorded
  std::string poison;    // "huge": times beyond any clock; "parts": a part longer than the whole;
                         // "moved": figures of collectives that are none
  uint64_t seed = 1;
};

// "ranks = 8", one setting. Throws std::runtime_error on an unknown key.
void Set(JobSpec& spec, const std::string& key, const std::string& value);

// By rank.
std::vector<timeline::Columns> SimulatedJob(const JobSpec& spec);
// The same, reduced, as a reader gives it.
v1::Batch JobRun(const JobSpec& spec);

}  // namespace plumbline::rules::testing
