// Is a batch well formed? What it means is the engine's question; this one keeps a broken or
// hostile sender from reaching the engine at all.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::server {

struct BatchLimits {
  size_t max_name_bytes = 512;
  int max_sources = 4096;
  int max_columns = 1 << 16;      // series of one set
  size_t max_sets = 4096;         // of one stream
  uint32_t max_world = 1u << 17;  // as the engine
  int max_role = 63;              // a newer agent may have some that we do not know
  int max_words = 64;             // of a source, about how far it is
  // Of a batch, a hello, a stream: what is declared counts for each of them. A process reports for
  // one run.
  size_t max_runs = 8;
};

// InvalidArgument: "evidence[3].routing.sample.scores: 12 bytes of data for f32 [4,8], expected
// 128".
absl::Status CheckBatch(const v1::Batch& batch, const BatchLimits& limits);
// Of one that was taken once, and so was checked; but what a file says may be anything. Names may
// be longer than the limit is now.
absl::Status CheckKeptBatch(const v1::Batch& batch);
absl::Status CheckSource(const v1::Source& source, const BatchLimits& limits);
// Each by itself, how many there are, and of how many runs: "sources[3]: rank 4 of 2 ranks".
absl::Status CheckSources(const google::protobuf::RepeatedPtrField<v1::Source>& sources,
                          const BatchLimits& limits);
// A declared set by itself. Whether rows fit their set: series_sets.h.
absl::Status CheckSeriesSet(const v1::SeriesSet& set, const BatchLimits& limits);

}  // namespace plumbline::server
