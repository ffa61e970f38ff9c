// Pools that span ranks: joins the rows of several ranks into one router call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// The call to judge at one item of a step.
struct RoutingCall {
  // nullptr if there is no sample here, or if it is judged at an earlier item.
  const v1::Routing* routing = nullptr;
  std::shared_ptr<const v1::Routing> joined;  // owns `routing` if ranks were joined
  std::vector<uint32_t> ranks;
  std::vector<int64_t>
      rank_ends;        // if joined: parallel to `ranks`, the row after the rank's last row
  std::string blocked;  // "short-id: sentence" if these rows cannot be judged
  // True for sequences of several ranks with hashed ids: the order of two ranks' sequences is not
  // known.
  bool order_lost = false;
  std::vector<std::string> assumptions;
};

// Returns calls parallel to step.items. If the pool is a group or the world, joins the step's
// ranks, rank by rank and call by call. If a rank is missing, the call is blocked, and the reason
// names the rank. If ranks number their own sequences, the ids are distinguished by rank.
std::vector<RoutingCall> JoinRanks(const SiteStep& step);

}  // namespace plumbline::analysis
