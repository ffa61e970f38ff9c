// Series of scalars as a trainer logs them, from lines of text: the injector of the rules on
// series.
//
//   steps = 300               of this attempt; first = 0, every = 1, ranks = 1, attempt = 0
//   lr = 1e-3 200>1e-5        any other key is a series; the value defines it over steps
//
// A series' value is a list of items, separated by blanks, from left to right:
//   0.5         from the first step on
//   120:0.25    from step 120 on
//   300>0.01    on a straight line from the value before to 0.01 at step 300, and on from there
//   37!nan      in step 37 only; 37!none: no value there
//   ~0.1        times e^(0.1 z), z normal (a seed of the series' name)
//   @1          on this rank only
// Further attempts follow after lines of ---.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

// Returns one batch per attempt. Throws std::runtime_error if the text is malformed.
std::vector<v1::Batch> SeriesRun(const std::string& text);

}  // namespace plumbline::rules::testing
