// Routers that people really run, at real sizes.
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
  bool leaks;  // by what is published of it, when experts are full
};
const std::vector<RealRouter>& RealRouters();

}  // namespace plumbline::rules::attack
