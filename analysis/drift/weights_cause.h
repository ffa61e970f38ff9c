// Finds causes of drift in the weights: an engine that keeps its first weights, an adapter that is
// not merged, another model; and of drift that begins in one step. Pure functions; thread-safe.
#pragma once

#include <optional>
#include <span>

#include "analysis/drift/cause.h"

namespace plumbline::analysis {

inline constexpr char kScoreInEvaluation[] =
    "Run the trainer's scoring pass in evaluation mode (no dropout, no router jitter). "
    "Score the same batch twice: the results must be equal.";

// What the trainer's values of one token in one context show, if they were recorded again within a
// step. kUnknown: there are too few, or most of the drift is in other tokens.
enum class RepeatedValues { kUnknown, kEqual, kRandom };
RepeatedValues RepeatsOf(const DriftStatistics& statistics, const DriftTests& tests);

// Returns the share of pairs of steps, a quarter of the series apart, in which drift rises. There
// must be at least four points.
double RisingShareOf(std::span<const DriftPoint> points);

// Finds drift that is small in the first steps and grows with the trainer's versions. If the engine
// scores recurring tokens with the same bits over many steps, its weights stand: missed-sync.
// Otherwise the cause is unknown, and its words name the causes that remain. Returns nothing if
// drift does not grow, or if other tokens explain the growth.
std::optional<DriftCause> GrowsWithVersions(const DriftStatistics& statistics);

// Finds the cause of a drift that begins in one step, and of a stretch of steps with more drift. A
// jump alone does not show its cause: an update that did not arrive, another arithmetic on one
// side, dropout, other prompts and another model all begin in one step. Two marks separate them. If
// the drift grows after the jump, the engine's weights stand, because no other cause grows with the
// versions. If the trainer scores one token in one context differently within a step, a random
// layer is active. Returns nothing if the drift has no jump and no stretch.
std::optional<DriftCause> OnsetCause(const DriftStatistics& s, const StepPatterns& patterns,
                                     const DriftTests& tests);

// Returns the cause to state if a test has shown that drift grows, and the only mark is noise,
// which does not grow.
DriftCause CauseOfGrowth(DriftCause cause);

// For a true record without any other mark, whose drift is beyond rounding: another model, or a
// random layer in the trainer's pass. If neither can be excluded, the cause is unknown.
DriftCause OtherWeights(const DriftStatistics& statistics, const DriftTests& tests);

// Returns true if log pi hardly depends on log mu. Another temperature would keep their order.
bool IsUnrelated(const SlopeFit& d_on_log_mu);

}  // namespace plumbline::analysis
