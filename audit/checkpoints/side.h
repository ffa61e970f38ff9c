// Reads one checkpoint of one step, for a comparison: its tensors by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "audit/readers/checkpoint/whole_checkpoint.h"
#include "audit/session/inputs.h"

namespace plumbline::audit {

// The part of a tensor in one rank's file.
struct TensorPart {
  const InputFile* file = nullptr;
  StoredTensor place;
  uint32_t rank = 0;
};

// Purpose of a tensor.
enum class TensorKind { kModel, kAverage, kOptimizer, kOther };

struct ComparedTensor {
  std::string name;   // "layers.0.weight", "layers.0.weight/exp_avg"
  std::string layer;  // "layers.0.weight"
  TensorKind kind = TensorKind::kModel;
  std::vector<TensorPart> parts;  // by rank; one part if the ranks are not distinguished
};

// One checkpoint. Keeps its files open. Not thread-safe.
struct CheckpointSide {
  std::string path, run;
  int64_t step = 0;
  std::optional<int64_t> reported_step;  // step stated by the content, not by the file names
  size_t steps = 1;                      // number of steps found; the newest was taken
  Inputs inputs;                         // the files, with their problems
  std::vector<WholeCheckpoint> ranks;
  std::vector<ComparedTensor> tensors;  // in the order of the files
  std::vector<double> rates;
  std::optional<double> optimizer_step, scheduler_step;

  bool failed() const;
  bool Has(TensorKind kind) const;
  std::vector<std::string> Layers() const;  // layers of the tensors
};

// Returns true if all recognised files at this path are checkpoints.
bool IsCheckpointPath(const std::string& path);

// Reads the checkpoint at a path: a file, or the newest step of the only run in a directory.
// Returns InvalidArgument if there is no checkpoint or there are several runs.
absl::StatusOr<std::unique_ptr<CheckpointSide>> ReadCheckpointSide(const std::string& path);

}  // namespace plumbline::audit
