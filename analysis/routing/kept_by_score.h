// Tests whether full experts kept better scores than they refused, although no policy that is known
// gives the refusals.
#pragma once

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// Returns by how many standard deviations the kept choices of full cells outrank the refused ones
// (Mann and Whitney 1947), over each cell's choices of one choice rank. A random selection gives a
// standard normal deviate. Choices of unknown rank are left out.
double KeptByScoreDeviations(const RoutingCase& c, const Saturation& s);

}  // namespace plumbline::analysis
