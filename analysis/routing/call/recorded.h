// What one router call recorded, read and checked: shapes, rows, pools, choices. Nothing here asks
// what the scores would have chosen; that is call/case.cc's.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/routing/call/case.h"
#include "base/router/rule.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

struct RecordedRouting {
  RoutingCase call;              // all but what rests on choices; rows are padding or still kTied
  RouterRule rule;               // but for the group score, which is often unrecorded
  std::vector<int32_t> indices;  // [T,k], empty when not recorded
  std::vector<uint8_t> keep;     // [T,k], empty when not recorded
};

// Borrows from the message as RoutingCase does. Errors as DecodeRouting's.
absl::StatusOr<RecordedRouting> ReadRouting(const v1::Routing& routing);

}  // namespace plumbline::rules
