// Copies of one file among those of a run: transformers writes its trainer's state, all that was
// logged so far in it, into the folder of each checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct StateFile {
  const InputReport* report = nullptr;
  uint64_t bytes = 0;
};

// Those that are not to be read, each with the path of the longest one of its output folder, which
// is. What is named on the command line is read.
std::map<const InputReport*, std::string> CopiesAmong(const std::vector<StateFile>& files);
// What is said of a copy.
std::string NoteOfCopy(const std::string& longest);

}  // namespace plumbline::audit
