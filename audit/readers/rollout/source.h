// Reads rollout files of one format and run as one stream of batches, in the order of their steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/rollout/columns.h"

namespace plumbline::audit {

// Sequences are evidence of the site ("policy", "logprobs"). Routing lists are evidence of
// ("layers.N", "routing").
inline constexpr char kPolicyLayer[] = "policy";
inline constexpr char kLogprobsOp[] = "logprobs";

// Number of steps by which steps may go back in a file. A step is complete if every file is this
// far past it, or if the waiting sequences exceed kLookBackBytes.
inline constexpr int64_t kStepLookBack = 8;
inline constexpr uint64_t kLookBackBytes = 64u << 20;
// Limit of bytes of one step, because a step is judged as a whole. Sequences beyond it are left
// out, counted, and reported as an error of the file. One GiB is about 1.5 GB of JSON lines.
inline constexpr uint64_t kStepBytes = uint64_t{1} << 30;

// Returns one source for each run in the files. Each file is opened when its first step is due. If
// a file cannot be read, adds a problem to its report and returns no source for it. `map` must
// outlive the sources.
std::vector<std::unique_ptr<Source>> OpenRollouts(const ColumnMap& map,
                                                  const std::vector<InputReport*>& files,
                                                  uint64_t step_bytes = kStepBytes);

}  // namespace plumbline::audit
