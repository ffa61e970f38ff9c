// What the user says of inputs that do not say it themselves (--map, --run).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumbline::audit {

// Of files of scalars (scalars/point_file.h).
struct ScalarOptions {
  std::string run;           // empty: from the file or its folder's name
  bool within = false;       // `run` is none by itself: all are within it, "exp1/val"
  std::string step;          // name of the step column; empty: by the names people use
  std::string rank_pattern;  // a regular expression whose first group is the rank, over the path;
                             // empty: none
};

// Of every reader. One that has no use for them is opened without (Reader::Open).
struct ReaderOptions {
  ScalarOptions scalars;
  // A rule is asked what weights would lose in formats with a scale a block: checkpoints are read
  // once more for it.
  bool block_fits = false;
  // Only findings that reach this step are asked for: checkpoints far before it are not read.
  std::optional<int64_t> since;
};

}  // namespace plumbline::audit
