// Why a recorded router call cannot be judged: the inconclusive verdicts that the routing rules
// share.
#pragma once

#include "analysis/routing/analysis.h"
#include "analysis/routing/call/call.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

v1::Verdict NoOrder(const RoutingCase& c);
v1::Verdict RandomChoice(const RoutingCase& c);
v1::Verdict Unexplained(const RoutingCase& c);
v1::Verdict UnknownRefusals(const RoutingCase& c);
v1::Verdict Poisoned(const RoutingCase& c);
v1::Verdict NormalisedOverTokens();
v1::Verdict ScoresNotOwn();
// Returns true if there is only one expert in one pool: that it holds the capacity may be a
// coincidence.
bool OneCellAlone(const Saturation& s);
v1::Verdict OneCell(double luck_bits);
v1::Verdict PricesOrBias();
v1::Verdict EvenByStructure();
// For inversions that no policy gives.
v1::Verdict CleanPattern(const RoutingAnalysis& a);
v1::Verdict PairsUnexplained(const RoutingAnalysis& a);

}  // namespace plumbline::analysis
