// One call's evidence as a file that plumb audit reads: a safetensors dump where its kind has one
// that holds all of it, a run record otherwise.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// The bytes of a safetensors dump (docs/tensor_dumps.md). Unimplemented where none would hold all
// that was measured: of tensors and updates the sampled elements are not the tensor; logits and
// log-probabilities travel as sums; a dump cannot name the site of a collective that is no sum.
absl::StatusOr<std::string> DumpOf(const v1::Source& source, const v1::Evidence& evidence);

// "routing", "reduction", ...; "" of what is no measurement.
std::string KindOf(const v1::Evidence& evidence);

// A run record of one process at `path`, which must not be there.
absl::Status WriteRecord(const std::string& path, const v1::Batch& batch);

}  // namespace plumbline::audit
