// Finds, from a path, the run and rank of a file of scalars, and the prefix of its series' names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/input/reader_options.h"

namespace plumbline::audit {

struct FilePlace {
  std::string run;
  uint32_t rank = 0;
  bool rank_stated = false;  // the path states the rank
  bool run_stated = false;   // the user states the run of this file
  std::string within;        // the user's name for all runs, if there are several
  std::string prefix;        // prefix of its series' names, without the slash: "val"

  static constexpr int64_t kMostRank = (1 << 17) - 1;
};

// Returns the places of files that are read together, in their order. `by_folder`: each folder is a
// run (PointFormat). The name of a run is the shortest suffix of its path that is unique.
//
// A folder or file named `train`, `val`, `test` or similar is part of the run next to it. If a
// folder holds such files, the folders in it are also part of its run. `rank0` or `rank_3` in a
// name is the rank.
std::vector<FilePlace> PlaceFiles(const std::vector<std::string>& paths, bool by_folder,
                                  const ScalarOptions& options);

// A file that may be a copy. transformers writes its trainer's state, with the whole log so far, to
// the folder of each checkpoint.
struct StateFile {
  const InputReport* report = nullptr;
  uint64_t bytes = 0;
};

// Returns copies that need not be read, each with the path of the longest file in its output
// folder. That file is read instead. Files on the command line are always read.
std::map<const InputReport*, std::string> CopiesAmong(const std::vector<StateFile>& files);
// Returns the note for a copy.
std::string NoteOfCopy(const std::string& longest);

// Returns InvalidArgument if `pattern` is not a regular expression, or has no group.
absl::Status CheckRankPattern(const std::string& pattern);

}  // namespace plumbline::audit
