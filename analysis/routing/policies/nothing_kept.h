// Finds experts that kept none of their choices. A capacity does not do that, because it keeps what
// fits. A null expert refuses all choices by a stored rule. A router may also drop experts that too
// few or too many tokens of the batch choose. The recording does not show which of the two is the
// case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

struct NothingKept {
  std::vector<int32_t> experts;
  int64_t refused = 0;    // choices of judged rows of these experts
  bool everybody = true;  // no expert kept any choice
  bool any() const { return !experts.empty(); }
  // Returns a text such as "experts 6 and 7 kept none of the 41 choices that fell on them".
  std::string Describe() const;
};

// Removes their choices from the case, so that the refusals of full experts can be judged.
NothingKept SetNothingKeptAside(RoutingCase& c);

v1::Verdict NothingKeptVerdict(const NothingKept& nothing);
// Replaces a pass: if such experts exist, a pass depends on a stored rule that was not recorded.
v1::Verdict NoPassNextTo(const NothingKept& nothing, v1::Verdict verdict);

}  // namespace plumbline::analysis
