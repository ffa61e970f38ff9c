// What a batch must be before anybody looks at what it says: sources, sites and steps, each within
// bounds. Engines hold every batch to it, servers besides with the limits of their configuration.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules {

struct BatchLimits {
  size_t max_name_bytes = 512;
  int max_sources = 4096;
  int max_columns = 1 << 16;  // series of one set
  size_t max_sets = 4096;     // of one stream
  // A larger world than any cluster is a lie that would cost memory.
  uint32_t max_world = 1u << 17;
  uint32_t max_rank = (1u << 17) - 1;  // also where no world is said
  int max_role = 63;                   // a newer agent may have some that we do not know
  int max_words = 64;                  // of a source, about how far it is
  // Of a batch, a hello, a stream: what is declared counts for each of them. A process reports for
  // one run.
  size_t max_runs = 8;
};

// What may be taken from a file of ours, or was taken once: only what would cost memory is bounded.
inline constexpr BatchLimits kLooseLimits = {.max_name_bytes = SIZE_MAX,
                                             .max_sources = INT_MAX,
                                             .max_columns = INT_MAX,
                                             .max_rank = UINT32_MAX,
                                             .max_role = INT_MAX,
                                             .max_words = INT_MAX,
                                             .max_runs = SIZE_MAX};

// InvalidArgument: "evidence[3].source: 5, but the batch names 2 sources". Series are checked by
// SeriesSets::Check.
absl::Status CheckBatch(const v1::Batch& batch, const BatchLimits& limits = kLooseLimits);
absl::Status CheckSource(const v1::Source& source, const BatchLimits& limits);
// Each by itself, how many there are, and of how many runs: "sources[3]: rank 4 of 2 ranks".
absl::Status CheckSources(const google::protobuf::RepeatedPtrField<v1::Source>& sources,
                          const BatchLimits& limits);

}  // namespace plumbline::rules
