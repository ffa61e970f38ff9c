// Interprets the values of a torch file. Finds the weights, averages and moments among the tensors,
// and the step and the learning rate among the numbers.
#pragma once

#include <string>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/torch_file.h"

namespace plumbline::audit {

// Fills `contents` with at most kMostTensors tensors per file. Work is linear in the pickle, as
// limited by PickleLimits.
inline constexpr size_t kMostTensors = size_t{1} << 19;
std::optional<Problem> WalkTorchFile(const TorchFile& file, CheckpointContents* contents,
                                     FileFindings* findings);

// Calls that were not interpreted, by name, sorted; the first place of each.
struct OpaqueCall {
  std::string name;
  uint64_t count = 0;
  uint64_t byte = 0;
  uint64_t circles = 0;  // number of references that led back into one of these calls and were cut
  bool data = true;      // all calls build data that trainers save in addition to tensors
};
std::vector<OpaqueCall> OpaqueCalls(const TorchFile& file);

}  // namespace plumbline::audit
