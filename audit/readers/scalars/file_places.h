// To which run and rank a file of scalars belongs, and what its series are called there, by its
// path.
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
  bool rank_stated = false;  // by the path
  bool run_stated = false;   // by the user, of this file
  std::string within;        // what the user called all runs, where there are several
  std::string prefix;        // of its series' names, without the slash: "val"

  static constexpr int64_t kMostRank = (1 << 17) - 1;
};

// The places of files that are read together, in their order. `by_folder`: a folder is a run
// (PointFormat). Runs are called as the end of their path that tells them apart.
//
// A folder or file of a word as `train`, `val` or `test` is a part of the run beside it; so is a
// folder within one that holds such files itself. `rank0`, `rank_3` in a name is the rank.
std::vector<FilePlace> PlaceFiles(const std::vector<std::string>& paths, bool by_folder,
                                  const ScalarOptions& options);

// Of copies of one file: transformers writes its trainer's state, all that was logged so far in it,
// into the folder of each checkpoint.
struct StateFile {
  const InputReport* report = nullptr;
  uint64_t bytes = 0;
};

// Those that are not to be read, each with the path of the longest one of its output folder, which
// is. What is named on the command line is read.
std::map<const InputReport*, std::string> CopiesAmong(const std::vector<StateFile>& files);
// What is said of a copy.
std::string NoteOfCopy(const std::string& longest);

// InvalidArgument: no regular expression, or one without a group.
absl::Status CheckRankPattern(const std::string& pattern);

}  // namespace plumbline::audit
