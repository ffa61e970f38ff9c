// Returns the note on a collective whose partial sums have 16 bits but show no bias yet.
#pragma once

#include "analysis/collective/reduction_statistics.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Returns the note, with the simulated bias over more ranks. `tally.growth` must be set.
v1::Verdict NarrowVerdict(const ReductionStatistics& tally, const char* fix);

}  // namespace plumbline::analysis
