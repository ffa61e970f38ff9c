// Checks a batch before its content is used: sources, sites and steps, each within bounds. Engines
// check every batch so. Servers add the limits of their configuration.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules {

struct BatchLimits {
  size_t max_name_bytes = 512;
  int max_sources = 4096;
  int max_columns = 1 << 16;  // series of one set
  size_t max_sets = 4096;     // of one stream
  // Larger than any cluster. A still larger number would only cost memory.
  uint32_t max_world = 1u << 17;
  uint32_t max_rank = (1u << 17) - 1;  // also if the world size is unknown
  int max_role = 63;                   // a newer agent may send roles that this build does not know
  int max_words = 64;                  // progress entries per source
  // Per batch, per hello and per stream, because the declarations of each run use memory. A process
  // reports for one run.
  size_t max_runs = 8;
};

// Limits for files that we wrote, or batches that were accepted before: only the fields that
// determine the memory are limited.
inline constexpr BatchLimits kLooseLimits = {.max_name_bytes = SIZE_MAX,
                                             .max_sources = INT_MAX,
                                             .max_columns = INT_MAX,
                                             .max_rank = UINT32_MAX,
                                             .max_role = INT_MAX,
                                             .max_words = INT_MAX,
                                             .max_runs = SIZE_MAX};

// Returns InvalidArgument, such as "evidence[3].source: 5, but the batch names 2 sources", if the
// batch is malformed. SeriesSets::Check checks series.
absl::Status CheckBatch(const v1::Batch& batch, const BatchLimits& limits = kLooseLimits);
absl::Status CheckSource(const v1::Source& source, const BatchLimits& limits);
// Checks each source, their number, and the number of their runs: "sources[3]: rank 4 of 2 ranks".
absl::Status CheckSources(const google::protobuf::RepeatedPtrField<v1::Source>& sources,
                          const BatchLimits& limits);

// Names the place of an error in a batch: "evidence[3].site.layer: 600 bytes, at most 512 are
// accepted".
// An entry of one of the batch's lists. Its text is built only if there is an error.
struct BatchPlace {
  const char* list;
  int index;

  absl::Status Bad(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(list, "[", index, "]", absl::string_view(what.data(), what.size())));
  }
  absl::Status CheckName(const char* field, const std::string& name, size_t most) const {
    if (name.size() <= most) return absl::OkStatus();
    return Bad(
        absl::StrCat(".", field, ": ", name.size(), " bytes, at most ", most, " are accepted"));
  }
};

}  // namespace plumbline::rules
