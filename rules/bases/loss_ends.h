// Findings on where a loss ends: above its beginning, far above all before, above its lowest level.
// Each function looks at the whole series. Call them at the end of the run.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/loss_run.h"

namespace plumbline::rules {

// The first thing to do after a divergence.
inline constexpr char kBackFix[] =
    "Go back to a checkpoint before the onset. Lower the learning rate or lengthen the warm-up, "
    "and clip the gradient norm.";

// An error: the end is a third above the beginning (`end.above`).
FindingBuilder EndsAboveFinding(const LossSeries& series, const EndFigures& end, int64_t onset);
// A warning: it was above its beginning and is not any more.
FindingBuilder CameBackFinding(const LossSeries& series, const EndFigures& end, int64_t onset);
// An error if the loss explodes at the end of its data. Else returns nullopt.
std::optional<FindingBuilder> ExplosionFinding(const LossSeries& series);
// An error or a warning if a short series rises from its lowest level up to its end. Else returns
// nullopt.
std::optional<FindingBuilder> LastingRiseFinding(const LossSeries& series);
// A warning if the loss breaks after its first point. Else returns nullopt.
std::optional<FindingBuilder> EarlyBreakFinding(const LossSeries& series);
// An error if the loss runs to minus infinity. Else returns nullopt.
std::optional<FindingBuilder> PlungeFinding(const LossSeries& series);
// A warning if an evaluation jumped to twice its beginning or its lowest level, which
// health/overfit does not report. Else returns nullopt.
std::optional<FindingBuilder> EvaluationRose(const LossSeries& series);

}  // namespace plumbline::rules
