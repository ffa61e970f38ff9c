// Rollout files of one format and run as one stream of batches, in the order of their steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

// Sequences are evidence of site ("policy", "logprobs"), routing lists of ("layers.N", "routing").
inline constexpr char kPolicyLayer[] = "policy";
inline constexpr char kLogprobsOp[] = "logprobs";

// How far steps may go back within the files: a step is complete when every file has come this far
// past it, or when the sequences that wait for that are of so many bytes.
inline constexpr int64_t kStepLookBack = 8;
inline constexpr uint64_t kLookBackBytes = 64u << 20;
// What is held of one step, which is judged as a whole: the sequences beyond are left out, told as
// an error of the file and counted. A GiB is some 1.5 GB of JSON lines.
inline constexpr uint64_t kStepBytes = uint64_t{1} << 30;

// One source a run that occurs in the files, each file opened when its first step's turn comes. A
// file that cannot be read gets a problem in its report and no source. `map` outlives the sources.
std::vector<std::unique_ptr<Source>> OpenRollouts(const ColumnMap& map,
                                                  const std::vector<InputReport*>& files,
                                                  uint64_t step_bytes = kStepBytes);

}  // namespace plumbline::audit
