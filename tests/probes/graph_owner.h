// An owner of sites. The test sets the GraphWish of each site.
#pragma once

#include <cstdint>
#include <map>

#include "probes/device/graph_calls.h"

namespace plumbline::probes {

class TestOwner final : public GraphOwner {
 public:
  GraphWish Wish(void* site) override {
    const auto found = stop_conditions.find(site);
    return found == stop_conditions.end() ? GraphWish{} : found->second;
  }
  uint32_t Reserve(void* site, uint32_t captured, uint32_t replays, uint32_t shown) override {
    expected = shown;
    reserved = captured * replays;
    return numbers[site];
  }
  uint64_t ReserveOrders(uint64_t observations) override {
    const uint64_t first = orders + 1;
    orders += observations;
    return first;
  }

  std::map<void*, GraphWish> stop_conditions;  // absent: not due
  std::map<void*, uint32_t> numbers;           // numbers that are taken; absent: none
  uint32_t reserved = 0;                       // last
  uint32_t expected = 0;
  uint64_t orders = 0;
};

}  // namespace plumbline::probes
