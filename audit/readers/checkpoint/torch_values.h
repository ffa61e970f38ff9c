// All values of a file of torch.save, not only its tensors: steps, scales, states of random
// generators, arguments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/input/file.h"

namespace plumbline::audit {

// A pickle, and the values in it that the checkpoint reader treats as named tensors.
struct ValueRoot {
  std::string name;  // name of an entry of a distributed part; empty for a whole file
  std::unique_ptr<TorchFile> file;
  absl::flat_hash_set<PickleId> named;
};

struct FileValues {
  std::vector<ValueRoot> roots;
  std::string wrong;  // reason why some values are missing; empty if none is
};

// Opens the values: one root for a file of torch.save, one for each entry that is not a tensor for
// a part of a distributed checkpoint, none for any other file. `file` must outlive the result.
FileValues OpenValues(const std::string& path, const InputFile& file);

}  // namespace plumbline::audit
