// The finding that late evidence of one cause makes: one a run, however many sites and ranks have a
// part in it.
#pragma once

#include <string>

#include "analysis/frame/frame.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// `cause` as RunSummary::late has it. A share of all evidence above `error_share` is an error.
v1::Verdict LateVerdict(const RunSummary& run, const std::string& cause,
                        const RunSummary::LateCount& late, double error_share);

}  // namespace plumbline::rules
