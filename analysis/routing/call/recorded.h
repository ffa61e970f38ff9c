// The records of one router call, read and checked: shapes, rows, pools, choices. The choices by
// the scores are computed in call/case.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/routing/call/case.h"
#include "base/router/rule.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

struct RecordedRouting {
  RoutingCase call;  // everything except what depends on choices; rows are padding or still kTied
  RouterRule rule;   // without the group score, which is often not recorded
  std::vector<int32_t> indices;  // [T,k], empty if not recorded
  std::vector<uint8_t> keep;     // [T,k], empty if not recorded
};

// Borrows from the message as RoutingCase does. Returns errors as DecodeRouting does.
absl::StatusOr<RecordedRouting> ReadRouting(const v1::Routing& routing);

}  // namespace plumbline::analysis
