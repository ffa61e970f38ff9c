// Checks that a batch is well formed, so that a broken or hostile sender does not reach the engine.
// The engine checks the meaning.
#pragma once

#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/engine/batch_check.h"

namespace plumbline::server {

using BatchLimits = rules::BatchLimits;

// Checks everything that rules::CheckBatch does, series, and the tensors of samples:
// "evidence[3].routing.sample. scores: 12 bytes of data for f32 [4,8], expected 128".
absl::Status CheckReceived(const v1::Batch& batch, const BatchLimits& limits);
// Checks a batch from a file. It was checked when it was received, but a file may hold anything.
// Names may be longer than the present limit.
absl::Status CheckKept(const v1::Batch& batch);
// Checks a declared set without its rows. series_sets.h checks whether rows fit their set.
absl::Status CheckSeriesSet(const v1::SeriesSet& set, const BatchLimits& limits);

}  // namespace plumbline::server
