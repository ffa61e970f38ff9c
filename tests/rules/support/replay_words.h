// Texts on a simulated reduction and its replay, for the messages of failing tests.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "analysis/collective/replay/replayed.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

inline std::string Words(const ReductionSpec& s) {
  return absl::StrCat(s.model, " ", DTypeName(s.dtype), " N=", s.ranks, " m=", s.samples, " ",
                      s.average, " start ", s.start, " direction ", s.direction, " ", s.segments,
                      " group ", s.group, " order ", s.order, " mean ", s.mean, " seed ", s.seed);
}

inline std::string States(const ReductionReplay& r) {
  return absl::StrCat(r.Words(), r.proved ? " (proved) " : " ", r.matches, "/", r.columns.size(),
                      ", k ", r.discriminating, " of ", r.needed, "; ", r.runner_up, ": ",
                      r.runner_up_matches);
}

// Returns a parameter that the replay claims. If it does not, returns "-".
inline std::string Claim(const ReductionReplay& r, const std::string& key) {
  const auto found = r.parameters.find(key);
  return found == r.parameters.end() ? "-" : found->second;
}

}  // namespace plumbline::rules::testing
