// Makes the names of analysis/ visible in namespace rules: rules judge what analysis/ computes. A
// file that includes rules/rule.h has this already. Other folders write `analysis::`.
#pragma once

namespace plumbline {

namespace analysis {}

namespace rules {
using namespace analysis;
}

}  // namespace plumbline
