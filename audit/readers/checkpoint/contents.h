// The content of one file of a checkpoint: tensors by name and part, and a few numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

enum class Part {
  kModel,
  kAverage,    // a moving average of the weights
  kOptimizer,  // optimizer state: of a parameter (moments), or of no single parameter
  kOther,
};

struct NamedTensor {
  Part part = Part::kModel;
  std::string name;  // "layers.0.weight"; for kOptimizer with `parameter`: "exp_avg"
  // For kOptimizer: the key of its parameter in the optimizer's state. For kAverage: its index in a
  // list.
  std::optional<int64_t> parameter;
  std::string parameter_name;  // set if the keys of the state are names
  StoredTensor place;
  uint32_t value = UINT32_MAX;  // in a file of torch.save: its id in the pickle
};

// One entry of an optimizer's param_groups.
struct ParameterGroup {
  double rate = 0;
  bool rated = false;
  std::optional<double> beta1, beta2, epsilon;
  std::vector<int64_t> parameters;  // keys of the state
  std::vector<std::string> names;   // set if the keys of the state are names
};

struct CheckpointContents {
  std::vector<NamedTensor> tensors;  // in the order of the file
  bool ordered = false;              // true if `tensors` is in the order of the model's parameters
  std::vector<ParameterGroup> groups;
  std::optional<int64_t> step;
  std::optional<double> optimizer_step;  // the largest step count of all parameters
  std::optional<double> scheduler_step;
};

// Problems and notes found while reading a file.
struct FileFindings {
  std::vector<Problem> problems;
  std::vector<std::string> notes;
};

// Reads a file. Returns the problem that ends the reading, or nothing. Adds problems of single
// tensors to `findings`, and leaves these tensors out. Refuses legacy forms of torch.save with an
// explanation. `path` is the file's path: a part of a distributed checkpoint needs the index next
// to it.
std::optional<Problem> ReadContents(const std::string& path, const InputFile& file,
                                    CheckpointContents* contents, FileFindings* findings);

// Form of a file, from its first bytes.
enum class CheckpointForm {
  kNone,
  kTorchZip,
  kSafetensors,
  kIndex,             // an index of safetensors shards
  kDistributedIndex,  // an index of PyTorch's distributed form
  kLegacyPickle,
  kLegacyTar
};
CheckpointForm FormOf(std::string_view path, std::string_view head);

// Readers of each form, called by contents.cc.
std::optional<Problem> ReadTorchContents(const InputFile& file, CheckpointContents* contents,
                                         FileFindings* findings);
std::optional<Problem> ReadSafetensorsContents(const InputFile& file, CheckpointContents* contents,
                                               FileFindings* findings);

}  // namespace plumbline::audit
