// Adds to a verdict on a router call the facts of the recording that contradict it.
#pragma once

#include <string>

#include "analysis/routing/analysis.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Returns how the recorded policy differs from the one that the recording shows, as a clause
// without its full stop. If it does not, returns an empty string.
std::string PolicyDiffers(const RoutingAnalysis& a);

// Returns the verdict if nothing contradicts it. If experts keep nothing, or if the policy is
// recorded as another, a pass becomes inconclusive, and a finding states which recorded facts
// differ.
v1::Verdict Checked(const RoutingAnalysis& a, v1::Verdict verdict);

// Return parts of a sentence. CapacityBits: " and 3.1 that one capacity refuses". If the
// configuration states it, an empty string.
std::string CapacityBits(const RoutingAnalysis& a);
// AgainstOwnRefusals: "3.1 against refusals of the tokens' own", or that own refusals explain more.
std::string AgainstOwnRefusals(const RoutingAnalysis& a);

// Returns what a balanced assignment shows.
std::string WhyBalance(const Balance& balance);
// Returns what library_ties shows.
std::string TopOfMask(const RoutingAnalysis& a);
// Returns why capacity, and not the tokens themselves, refused the pairs.
std::string WhyCapacity(const RoutingAnalysis& a, double bits);

}  // namespace plumbline::analysis
