// What makes a router look ahead: how each cause is called, and the way out.
#pragma once

#include <string_view>

namespace plumbline::rules {

struct RoutingCause {
  const char* id;  // a finding's cause.id
  const char* title;
  const char* fix;
};

// The unknown one where there is no such id.
const RoutingCause& CauseOf(std::string_view id);

}  // namespace plumbline::rules
