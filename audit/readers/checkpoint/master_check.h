// Is a 16-bit weight its fp32 master, rounded? Both lie in files.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"

namespace plumbline::audit {

struct MasterCheck {
  uint64_t compared = 0;
  uint64_t differ = 0;  // from the master, rounded to nearest even; zeros of both signs are equal,
                        // and so are NaN
  uint64_t beyond = 0;  // of these, also from what rounding in either direction gives
  uint64_t first = 0;   // index in C order of the first that differs, and its values
  double weight = 0;
  double master = 0;
};

// Of one shape, bf16 or fp16 beside fp32, both dense and lowest byte first.
bool CanCheckMaster(const StoredTensor& weight, const StoredTensor& master);

// In pieces of a MiB. Of tensors that CanCheckMaster.
absl::Status CheckMaster(const InputFile& weight_file, const StoredTensor& weight,
                         const InputFile& master_file, const StoredTensor& master,
                         MasterCheck* out);

}  // namespace plumbline::audit
