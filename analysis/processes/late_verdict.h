// The finding about late evidence of one cause: one per run, for any number of sites and ranks.
#pragma once

#include <string>

#include "analysis/frame/frame.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// `cause` is a key of RunSummary::late. If its share of all evidence exceeds `error_share`, it is
// an error.
v1::Verdict LateVerdict(const RunSummary& run, const std::string& cause,
                        const RunSummary::LateCount& late, double error_share);

}  // namespace plumbline::analysis
