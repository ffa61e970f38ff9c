// Writes one call's evidence as a file that plumb audit reads: a safetensors dump if a dump of its
// kind can hold everything, otherwise a run record.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Returns a safetensors dump (docs/tensor_dumps.md). Returns Unimplemented if no dump would hold
// the whole measurement: for tensors and updates the sampled elements are not the tensor; logits
// and log-probabilities are stored as sums; a dump cannot name the site of a collective that is not
// a sum.
absl::StatusOr<std::string> DumpOf(const v1::Source& source, const v1::Evidence& evidence);

// Returns "routing", "reduction", ...; "" if the evidence is not a measurement.
std::string KindOf(const v1::Evidence& evidence);

// Writes a run record of one process to `path`, which must not exist.
absl::Status WriteRecord(const std::string& path, const v1::Batch& batch);

}  // namespace plumbline::audit
