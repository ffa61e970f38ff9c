// The finding about ranks of a job that sent nothing.
#pragma once

#include "analysis/frame/frame.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

inline constexpr const char* kAbsentRule = "meta/probe-coverage";

v1::Verdict AbsentVerdict(const RunSummary& run, const RunSummary::AbsentRanks& absent);

}  // namespace plumbline::analysis
