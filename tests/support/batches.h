// Batches as agents send them.
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::test {

inline v1::Source SourceOf(const std::string& run, uint32_t rank = 0, uint32_t world = 1,
                           uint32_t attempt = 0) {
  v1::Source source;
  source.set_run(run);
  source.set_role(v1::ROLE_TRAINER);
  source.set_rank(rank);
  source.set_world_size(world);
  source.set_attempt(attempt);
  return source;
}

inline v1::Batch BatchOf(const v1::Source& source) {
  v1::Batch batch;
  *batch.add_sources() = source;
  return batch;
}

inline v1::Evidence& AddScalar(v1::Batch* batch, const std::string& op, int64_t step,
                               double value) {
  v1::Evidence& evidence = *batch->add_evidence();
  evidence.mutable_site()->set_op(op);
  evidence.set_step(step);
  evidence.mutable_scalar()->set_value(value);
  return evidence;
}

// Reports that the first source has sent all evidence up to this step and has begun no later step;
// -1: none.
inline v1::Progress& AddProgress(v1::Batch* batch, int64_t step) {
  v1::Progress& progress = *batch->add_progress();
  progress.set_any_step(step >= 0);
  progress.set_complete_through(step);
  progress.set_newest_step(step);
  return progress;
}

}  // namespace plumbline::test
