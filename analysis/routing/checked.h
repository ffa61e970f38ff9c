// What a verdict on a router call must not leave unsaid: facts of the recording that contradict it.
#pragma once

#include <string>

#include "analysis/routing/analysis.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Not empty: the recorded policy is not the one that the recording shows, as a clause without its
// full stop.
std::string PolicyDiffers(const RoutingAnalysis& a);

// The verdict, where nothing contradicts it. A pass beside experts that keep nothing, or beside a
// policy that is recorded as another, is inconclusive; a finding says what is recorded otherwise.
v1::Verdict Checked(const RoutingAnalysis& a, v1::Verdict verdict);

// Parts of a sentence. " and 3.1 that one capacity refuses"; empty where the configuration says so.
std::string CapacityBits(const RoutingAnalysis& a);
// "3.1 against refusals of the tokens' own", or that those explain more.
std::string AgainstOwnRefusals(const RoutingAnalysis& a);

}  // namespace plumbline::rules
