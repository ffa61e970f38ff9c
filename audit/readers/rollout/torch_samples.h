// Reads rollouts that a trainer saved with torch.save (slime's --save-debug-rollout-data and
// --save-debug-train-data, batches of other trainers) as the JSON lines that the parser reads.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"

namespace plumbline::audit {

// Returns true if the first bytes may be those of such a file. Fast, because it searches only for
// names.
bool MayHoldSamples(std::string_view head);

// Returns the keys of the first samples whose values are not None; empty if the file holds none.
std::set<std::string, std::less<>> KeysOfTorchSamples(const std::string& path);

// Opens the samples as a stream of JSON lines, one sample per line. Reads a list of samples, or a
// dict of lists or tensors whose first axis is the sample. Plain values around them belong to each
// sample. Leaves out texts. If the file holds no samples, the stream has a problem.
std::unique_ptr<ByteStream> OpenTorchSamples(const std::string& path, InputFile file);

}  // namespace plumbline::audit
