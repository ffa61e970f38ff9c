// Is a batch well formed? What it means is the engine's question; this one keeps a broken or
// hostile sender from reaching the engine at all.
#pragma once

#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/engine/batch_check.h"

namespace plumbline::server {

using BatchLimits = rules::BatchLimits;

// rules::CheckBatch, and series and the tensors of samples besides: "evidence[3].routing.sample.
// scores: 12 bytes of data for f32 [4,8], expected 128".
absl::Status CheckReceived(const v1::Batch& batch, const BatchLimits& limits);
// Of one that was taken once, and so was checked; but what a file says may be anything. Names may
// be longer than the limit is now.
absl::Status CheckKept(const v1::Batch& batch);
// A declared set by itself. Whether rows fit their set: series_sets.h.
absl::Status CheckSeriesSet(const v1::SeriesSet& set, const BatchLimits& limits);

}  // namespace plumbline::server
