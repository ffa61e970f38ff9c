// A model, a cluster, and how the one is laid out on the other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumbline::plan {

struct ModelShape {
  double parameters = 0;
  double active = 0;  // parameters that one token uses; 0: all
  int64_t layers = 0;
  int64_t hidden = 0;  // 0: activations are not estimated
  int64_t heads = 0;   // of attention; 0: as hidden
  int64_t sequence = 0;

  double used() const { return active > 0 ? active : parameters; }
};

struct Cluster {
  double gpus = 0;
  double peak = 0;         // FLOP/s of one GPU in the dtype used, dense
  double mfu = 0.4;        // of the peak that computing alone reaches
  double memory = 0;       // bytes of one GPU
  double domain = 8;       // GPUs of one domain
  double link = 0;         // bytes/s of one GPU out of its domain
  double domain_link = 0;  // bytes/s of one GPU within it
  bool rails = true;       // all GPUs of a domain carry what leaves it
};

// What is cut over the data-parallel ranks.
enum class Sharding { kNone, kOptimizer, kGradients, kWeights };
const char* ShardingName(Sharding sharding);  // "none", "zero1", "zero2", "zero3"

struct Layout {
  double batch_tokens = 0;     // a step, all GPUs
  double micro_sequences = 1;  // of one micro-batch of one replica
  double tensor = 1;
  double stages = 1;          // of the pipeline
  double virtual_stages = 1;  // a rank
  Sharding sharding = Sharding::kWeights;
  double weight_bytes = 2;      // each, as stored and gathered
  double gradient_bytes = 2;    // each, as reduced
  double optimizer_bytes = 12;  // a parameter: fp32 copy and two moments
  double gathers = 1;           // micro-batches of a step that gather the weights anew
  double reductions = 1;        // reduce-scatters of the gradients a step
};

struct Input {
  ModelShape model;
  Cluster cluster;
  Layout layout;
};

// InvalidArgument: what is missing, out of range or does not divide, with what was expected.
absl::Status CheckPlan(const Input& input);

// GPUs that hold a copy of one shard of the model: over them gradients are averaged.
inline double DataParallel(const Input& in) {
  return in.cluster.gpus / (in.layout.tensor * in.layout.stages);
}
// Sequences of one step.
inline double Sequences(const Input& in) {
  return in.layout.batch_tokens / static_cast<double>(in.model.sequence);
}
// Micro-batches that one replica runs in a step; a fraction: the batch is too small or not even.
inline double MicroBatches(const Input& in) {
  return Sequences(in) / (DataParallel(in) * in.layout.micro_sequences);
}

}  // namespace plumbline::plan
