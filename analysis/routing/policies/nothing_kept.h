// Experts that kept none of the choices that fell on them. No capacity does that, since it keeps
// what fits; a null expert does, by a stored rule, and so does a router that leaves out experts
// that too few or too many tokens of the batch want. Which of them does not show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/routing/call/call.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

struct NothingKept {
  std::vector<int32_t> experts;
  int64_t refused = 0;    // choices of judged rows that fell on them
  bool everybody = true;  // no expert kept anything
  bool any() const { return !experts.empty(); }
  // "experts 6 and 7 kept none of the 41 choices that fell on them".
  std::string Describe() const;
};

// Takes their choices out of the case, so that what full experts refused can be judged.
NothingKept SetNothingKeptAside(RoutingCase& c);

v1::Verdict NothingKeptVerdict(const NothingKept& nothing);
// A pass beside such experts rests on a stored rule that nobody recorded: it is none.
v1::Verdict NoPassBeside(const NothingKept& nothing, v1::Verdict verdict);

}  // namespace plumbline::rules
