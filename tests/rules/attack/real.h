// Routers in production use, at realistic sizes.
#pragma once

#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

struct Made {
  Rows rows;
  Call call;
};
struct RealRouter {
  const char* name;
  Made (*make)(const Lab& lab);
  bool leaks;  // If set, the router leaks according to its publication if experts are full.
};
const std::vector<RealRouter>& RealRouters();

}  // namespace plumbline::rules::attack
