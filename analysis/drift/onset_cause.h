// The cause of a drift that begins in one step, and of a stretch of steps with more drift. Pure
// functions; thread-safe.
//
// A jump alone does not show its cause: an update that did not arrive, another arithmetic on one
// side, dropout, other prompts and another model all begin in one step. Two marks separate them. If
// the drift grows after the jump, the engine's weights stand, because no other cause grows with the
// versions. If the trainer scores one token in one context differently within a step, a random
// layer is active.
#pragma once

#include <optional>
#include <span>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

// Returns nothing if the drift has no jump and no stretch.
std::optional<DriftCause> OnsetCause(const DriftStatistics& s, const StepPatterns& patterns,
                                     const DriftTests& tests);

// Returns the cause to state if a test has shown that drift grows, and the only mark is noise,
// which does not grow.
DriftCause CauseOfGrowth(DriftCause cause);

}  // namespace plumbline::analysis
