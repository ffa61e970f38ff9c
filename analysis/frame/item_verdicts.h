// For rules that judge each rank's evidence separately and report once per site and step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/frame/step.h"
#include "analysis/frame/verdict_sink.h"

namespace plumbline::analysis {

// If it returns nullopt, the rule does not apply to the item.
using ItemJudge = std::function<std::optional<v1::Verdict>(const Item&)>;

// Judges every item and adds at most one verdict: the strongest finding (by level, then strength,
// then the lowest rank), with every rank that has one of its level; else a pass, if any; else the
// first inconclusive verdict.
void JudgeItems(const SiteStep& step, const ItemJudge& judge, VerdictSink& out);

// Return true for the kinds of running value with their own rules: an average of parameters ("ema",
// or no optimizer named and a decay of at least a half, which no weight decay is), a sum of
// micro-batch gradients ("accumulation").
bool IsAverage(const v1::UpdateConfig& config);
bool IsAccumulation(const v1::UpdateConfig& config);
// `name` is in lower case; trainers also write "EMA" and "AMSGrad".
bool IsOptimizer(const v1::UpdateConfig& config, std::string_view name);

}  // namespace plumbline::analysis
