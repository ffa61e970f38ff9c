// Builds run records for tests from the evidence in dumps, so that a record and a dump can be
// compared finding by finding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit::testing {

struct RecordPlan {
  std::string run = "demo";
  uint32_t attempt = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t stream_id = 1;
  int64_t first_step = 0;
  int64_t steps = 3;
  bool finished = true;
};

// One batch per step, each with the dump's evidence and its progress.
std::vector<v1::Batch> Batches(const RecordPlan& plan, const Dump& dump);

// The bytes of a record: header, then the batches. `header` replaces the default header's bytes.
std::string RecordFile(const RecordPlan& plan, const std::vector<v1::Batch>& batches);
std::string RecordFile(const RecordPlan& plan, const Dump& dump);

// Frames of any kind after a file header.
std::string FramesFile(const std::vector<std::pair<int, std::string>>& frames);

std::string HeaderPayload(const RecordPlan& plan);

}  // namespace plumbline::audit::testing
