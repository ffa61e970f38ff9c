// The files of all checkpoints, each with its run, step and rank, before any tensor is read.
#pragma once

#include <cstdint>
#include <optional>
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
  std::optional<int64_t> told_step;  // by the content, whatever names say
  bool apart = false;  // of no step, beside files whose names say theirs: a run of its own
  uint32_t rank = 0;
  RankTag tag;
};

// In the order in which they are read: by run, step, rank, path. What is wrong with a file goes to
// its report; one that cannot be read is left out.
std::vector<PlannedFile> PlanCheckpoints(const std::vector<InputReport*>& files);

// How many checkpoints before a step are read for what begins in them and goes on.
inline constexpr size_t kReadBefore = 3;

// Those of each run from `since` on and its kReadBefore newest ones before; the others' reports say
// that they were not read. In the same order.
std::vector<PlannedFile> PlansSince(std::vector<PlannedFile> plans, int64_t since);

}  // namespace plumbline::audit
