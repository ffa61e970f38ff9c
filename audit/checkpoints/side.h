// One checkpoint of one step, to be held against another: its tensors by name.
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

// What one rank's file holds of a tensor.
struct TensorPart {
  const InputFile* file = nullptr;
  StoredTensor place;
  uint32_t rank = 0;
};

// What a tensor is kept for.
enum class TensorKind { kModel, kAverage, kOptimizer, kOther };

struct ComparedTensor {
  std::string name;   // "layers.0.weight", "layers.0.weight/exp_avg"
  std::string layer;  // "layers.0.weight"
  TensorKind kind = TensorKind::kModel;
  std::vector<TensorPart> parts;  // by rank; one where no ranks are told apart
};

// Its files stay open. Not thread-safe.
struct CheckpointSide {
  std::string path, run;
  int64_t step = 0;
  std::optional<int64_t> told_step;  // by the content, whatever names say
  size_t steps = 1;                  // that were found; of several the newest was taken
  Inputs inputs;                     // with what is wrong with them
  std::vector<WholeCheckpoint> ranks;
  std::vector<ComparedTensor> tensors;  // in the order of the files
  std::vector<double> rates;
  std::optional<double> optimizer_step, scheduler_step;

  bool failed() const;
  bool Has(TensorKind kind) const;
  std::vector<std::string> Layers() const;  // of its tensors
};

// Are all files that are recognised at this path checkpoints?
bool IsCheckpointPath(const std::string& path);

// The checkpoint at a path: a file, or the newest step of the one run in a directory.
// InvalidArgument: there is none, or there are several runs.
absl::StatusOr<std::unique_ptr<CheckpointSide>> ReadCheckpointSide(const std::string& path);

}  // namespace plumbline::audit
