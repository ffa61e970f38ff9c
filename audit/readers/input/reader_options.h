// Options of the user (--map, --run), for facts that an input does not contain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumbline::audit {

// For files of scalars (scalars/point_file.h).
struct ScalarOptions {
  // Name of the run; if empty, uses the name in the file or of its folder.
  std::string run;
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
  // If set, only findings that reach this step are requested, so checkpoints far before it are not
  // read.
  std::optional<int64_t> since;
};

}  // namespace plumbline::audit
