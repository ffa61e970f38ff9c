// Which incidents of a run are symptoms of another one: a NaN weight makes the loss NaN, a gradient
// that is never cleared makes the loss diverge. The order of causes is fixed. Thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Returns, for each incident by the finding that it shows, the index of the incident whose symptom
// it is, or its own index. A root is no symptom itself. Two incidents have one cause if they are of
// one run, their rules are in one list of causes.cc, and the later one begins a few steps from the
// first, or while it lasts. The root has the highest level; if equal, it comes first in the list.
// Suppressed findings are neither roots nor symptoms. The result does not depend on the order of
// `shown`, except for the indices.
std::vector<size_t> RootsOf(const std::vector<const v1::Finding*>& shown);

}  // namespace plumbline::rules
