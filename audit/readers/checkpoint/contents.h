// What one file of a checkpoint holds: tensors by name and part, and a few numbers.
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
  kOptimizer,  // what is kept of a parameter (moments), or of none
  kOther,
};

struct NamedTensor {
  Part part = Part::kModel;
  std::string name;  // "layers.0.weight"; kOptimizer with `parameter`: "exp_avg"
  // kOptimizer: the parameter it belongs to, by its key in the optimizer's state. kAverage: its
  // place in a list of them.
  std::optional<int64_t> parameter;
  std::string parameter_name;  // where the state is keyed by names
  StoredTensor place;
  uint32_t value = UINT32_MAX;  // its number in the pickle of a file that torch.save wrote
};

// One entry of an optimizer's param_groups.
struct ParameterGroup {
  double rate = 0;
  bool rated = false;
  std::optional<double> beta1, beta2, epsilon;
  std::vector<int64_t> parameters;  // keys of the state
  std::vector<std::string> names;   // of a state that is keyed by names
};

struct CheckpointContents {
  std::vector<NamedTensor> tensors;  // in the order of the file
  bool ordered = false;              // which is that of the model's parameters
  std::vector<ParameterGroup> groups;
  std::optional<int64_t> step;
  std::optional<double> optimizer_step;  // the largest of a parameter's
  std::optional<double> scheduler_step;
};

// What is read of a file beside its tensors goes to these.
struct FileFindings {
  std::vector<Problem> problems;
  std::vector<std::string> notes;
};

// The problem that ends the reading of a file, or nothing. What is wrong with single tensors goes
// to `findings`, and they are left out. Legacy forms of torch.save are refused in words. `path` is
// the file's: a part of a distributed checkpoint is read by the index beside it.
std::optional<Problem> ReadContents(const std::string& path, const InputFile& file,
                                    CheckpointContents* contents, FileFindings* findings);

// By the first bytes of a file: what it is.
enum class CheckpointForm {
  kNone,
  kTorchZip,
  kSafetensors,
  kIndex,             // of safetensors shards
  kDistributedIndex,  // of PyTorch's distributed form
  kLegacyPickle,
  kLegacyTar
};
CheckpointForm FormOf(std::string_view path, std::string_view head);

// By form (contents.cc calls them).
std::optional<Problem> ReadTorchContents(const InputFile& file, CheckpointContents* contents,
                                         FileFindings* findings);
std::optional<Problem> ReadSafetensorsContents(const InputFile& file, CheckpointContents* contents,
                                               FileFindings* findings);

}  // namespace plumbline::audit
