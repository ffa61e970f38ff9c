// Checks whether a 16-bit weight in a file is its fp32 master, rounded.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"

namespace plumbline::audit {

struct MasterCheck {
  uint64_t compared = 0;
  // Elements that differ from the master rounded to nearest even; +0 equals -0, and all NaNs are
  // equal.
  uint64_t differ = 0;
  // Those of them that differ from the master rounded up and from it rounded down.
  uint64_t beyond = 0;
  uint64_t first = 0;  // index in C order of the first difference, and its values
  double weight = 0;
  double master = 0;
};

// Returns true if the shapes are equal, the dtypes are bf16 or fp16 and fp32, and both are dense,
// lowest byte first.
bool CanCheckMaster(const StoredTensor& weight, const StoredTensor& master);

// Compares in pieces of 1 MiB. Requires CanCheckMaster.
absl::Status CheckMaster(const InputFile& weight_file, const StoredTensor& weight,
                         const InputFile& master_file, const StoredTensor& master,
                         MasterCheck* out);

}  // namespace plumbline::audit
