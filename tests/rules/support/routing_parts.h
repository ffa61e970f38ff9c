// Splits a recorded router call into the records of several ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::rules::testing {

struct Split {
  uint32_t ranks = 4;
  uint32_t world = 4;  // as the sources state
  v1::RoutingConfig::Pool pool = v1::RoutingConfig::POOL_WORLD;
  bool keep_pool_id = true;
  bool own_numbers = false;
  std::vector<uint32_t> absent;
};

// Returns one batch per rank with equal shares of the rows.
std::vector<v1::Batch> PartsOf(const SyntheticRouting& whole, const Split& split = {});

}  // namespace plumbline::rules::testing
