// The files of all checkpoints, each with its run, step and rank, before any tensor is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/place.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct PlannedFile {
  InputReport* report = nullptr;  // of the file, or of the index that names it
  std::string path;
  std::string run;
  int64_t step = 0;
  uint32_t rank = 0;
  RankTag tag;
};

// In the order in which they are read: by run, step, rank, path. What is wrong with a file goes to
// its report; one that cannot be read is left out.
std::vector<PlannedFile> PlanCheckpoints(const std::vector<InputReport*>& files);

}  // namespace plumbline::audit
