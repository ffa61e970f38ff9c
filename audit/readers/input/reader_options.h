// Options of the user for inputs that do not state something themselves (--map, --run).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumbline::audit {

// For files of scalars (scalars/point_file.h).
struct ScalarOptions {
  std::string run;           // empty: from the file or its folder's name
  bool within = false;       // `run` is a prefix of all runs: "exp1/val"
  std::string step;          // name of the step column; if empty, the usual names
  std::string rank_pattern;  // a regular expression on the path whose first group is the rank;
                             // empty: none
};

// For all readers. A reader that needs no options is opened without them (Reader::Open).
struct ReaderOptions {
  ScalarOptions scalars;
  // Set if a rule judges the error of weights in block-scaled formats: checkpoints are then read
  // twice.
  bool block_fits = false;
  // Only findings that reach this step are requested: checkpoints far before it are not read.
  std::optional<int64_t> since;
};

}  // namespace plumbline::audit
