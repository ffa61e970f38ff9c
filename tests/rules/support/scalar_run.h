// Simulated scalars of a run: a loss over steps, with a fault; also a rate and an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

struct ScalarRunSpec {
  std::string name = "train/loss";
  int points = 400;
  int every = 1;  // steps from one point to the next
  int ranks = 1;  // ranks that report it, each with its own noise
  double begin = 8;
  double floor = 2;
  double power = 0.5;
  double scale = 20;  // points after which the power law bends
  double noise = 0.01;
  double shift = 0;  // added to all values: they may be negative
  double rounding = 0;
  int plateau = 0;    // flat from this point on; 0 means never
  bool flat = false;  // it never falls
  // "spike": adds a share of the loss; "decay": that share, decreasing; "ramp": growing to it;
  // "nan", "inf"; "absent": no value.
  std::string fault;
  int fault_at = 0;
  int fault_points = 1;
  double fault_height = 1;
  int fault_rank = -1;     // all
  int rate_restart = 0;    // a rate is reported and rises again at this point
  bool rate = false;       // a rate is reported
  int resume_at = 0;       // a second attempt begins after this point,
  int resume_from = 0;     // and starts with this one
  std::string evaluation;  // name of an additional series, one point every tenth step
  double overfit = 0;      // share by which that series rises over its last half
  uint64_t seed = 1;
};

// Sets one field, such as "points = 500". Throws std::runtime_error if the key is unknown.
void Set(ScalarRunSpec& spec, const std::string& key, const std::string& value);

// Returns a batch for each attempt.
std::vector<v1::Batch> ScalarRun(const ScalarRunSpec& spec);

}  // namespace plumbline::rules::testing
