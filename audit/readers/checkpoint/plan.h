// Finds the files of all checkpoints with their run, step and rank, before any tensor is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/place.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct PlannedFile {
  InputReport* report = nullptr;  // report of the file, or of the index that names it
  std::string path;
  std::string run;
  int64_t step = 0;
  std::optional<int64_t> reported_step;  // step in the content, also if the names state another
  // Has no step, but names of other files have one: the file is a run of its own.
  bool apart = false;
  uint32_t rank = 0;
  RankTag tag;
};

// Returns the files in reading order: by run, step, rank, path. Problems of a file go to its
// report. A file that cannot be read is left out.
std::vector<PlannedFile> PlanCheckpoints(const std::vector<InputReport*>& files);

// Number of checkpoints that are read before the requested step, because a change may begin in
// them.
inline constexpr size_t kReadBefore = 3;

// Keeps, for each run, the checkpoints from `since` on and the kReadBefore newest before it, in the
// same order. The reports of the others state that they were not read.
std::vector<PlannedFile> PlansSince(std::vector<PlannedFile> plans, int64_t since);

}  // namespace plumbline::audit
