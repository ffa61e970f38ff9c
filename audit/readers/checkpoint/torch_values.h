// All that a file of torch.save's holds, its tensors and whatever lies beside them: steps, scales,
// states of random generators, arguments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/input/file.h"

namespace plumbline::audit {

// A pickle and which of its values the reader of checkpoints takes as named tensors.
struct ValueRoot {
  std::string name;  // of an entry of a distributed part; empty: the whole file
  std::unique_ptr<TorchFile> file;
  absl::flat_hash_set<PickleId> named;
};

struct FileValues {
  std::vector<ValueRoot> roots;
  std::string wrong;  // why some are missing; empty: all are there
};

// Of a file that torch.save wrote one root; of a part of a distributed checkpoint one for each
// entry that is no tensor; of any other none. `file` outlives them.
FileValues OpenValues(const std::string& path, const InputFile& file);

}  // namespace plumbline::audit
