// Pools that span ranks: the rows of several ranks put together into one router call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

// What is judged at one item of a step.
struct RoutingCall {
  const v1::Routing* routing = nullptr;       // null: no sample here, or judged at an earlier item
  std::shared_ptr<const v1::Routing> joined;  // owns `routing` where ranks were joined
  std::vector<uint32_t> ranks;
  std::vector<int64_t>
      rank_ends;        // where joined, parallel to `ranks`: the row after the rank's last
  std::string blocked;  // "short-id: sentence": these rows cannot be judged
  // Sequences of several ranks whose ids are hashes: which of two ranks' sequences comes first is
  // not known.
  bool order_lost = false;
  std::vector<std::string> assumptions;
};

// Parallel to step.items. Calls whose pool is a group or the world are joined over the ranks of the
// step, rank by rank, call by call; a rank that is missing blocks them, by name. Sequence ids that
// ranks number for themselves are told apart by rank.
std::vector<RoutingCall> JoinRanks(const SiteStep& step);

}  // namespace plumbline::rules
