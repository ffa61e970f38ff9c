// A model, a cluster, and the layout of the model on the cluster.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumbline::plan {

struct ModelShape {
  double parameters = 0;
  double active = 0;  // parameters that one token uses; 0 means all
  int64_t layers = 0;
  int64_t hidden = 0;  // if 0, activations are not estimated
  int64_t heads = 0;   // of attention; if 0, as hidden
  int64_t sequence = 0;

  double used() const { return active > 0 ? active : parameters; }
};

struct Cluster {
  double gpus = 0;
  double peak = 0;         // FLOP/s of one GPU in the dtype used, dense
  double mfu = 0.4;        // share of the peak that computing alone reaches
  double memory = 0;       // bytes of one GPU
  double domain = 8;       // GPUs of one domain
  double link = 0;         // bytes/s of one GPU out of its domain
  double domain_link = 0;  // bytes/s of one GPU within it
  bool rails = true;       // all GPUs of a domain carry the traffic that leaves it
};

// The state that is sharded over the data-parallel ranks.
enum class Sharding { kNone, kOptimizer, kGradients, kWeights };
const char* ShardingName(Sharding sharding);  // "none", "zero1", "zero2", "zero3"

struct Layout {
  double batch_tokens = 0;     // per step, over all GPUs
  double micro_sequences = 1;  // per micro-batch of one replica
  double tensor = 1;
  double stages = 1;          // of the pipeline
  double virtual_stages = 1;  // per rank
  Sharding sharding = Sharding::kWeights;
  double weight_bytes = 2;      // per weight, as stored and gathered
  double gradient_bytes = 2;    // per gradient, as reduced
  double optimizer_bytes = 12;  // per parameter: fp32 copy and two moments
  double gathers = 1;           // micro-batches of a step that gather the weights again
  double reductions = 1;        // reduce-scatters of the gradients per step
};

struct Input {
  ModelShape model;
  Cluster cluster;
  Layout layout;
};

// Returns InvalidArgument with what was expected if something is missing, out of range or not
// divisible.
absl::Status CheckPlan(const Input& input);

// Returns the number of GPUs that hold a copy of one shard of the model, over which gradients are
// averaged.
inline double DataParallel(const Input& in) {
  return in.cluster.gpus / (in.layout.tensor * in.layout.stages);
}
// Returns the sequences of one step.
inline double Sequences(const Input& in) {
  return in.layout.batch_tokens / static_cast<double>(in.model.sequence);
}
// Returns the micro-batches that one replica runs in a step. A fraction means that the batch is too
// small or uneven.
inline double MicroBatches(const Input& in) {
  return Sequences(in) / (DataParallel(in) * in.layout.micro_sequences);
}

}  // namespace plumbline::plan
