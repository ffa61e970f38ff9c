// The causes for which a router looks ahead: the title and the fix of each.
#pragma once

#include <string_view>

namespace plumbline::analysis {

struct RoutingCause {
  const char* id;  // a finding's cause.id
  const char* title;
  const char* fix;
};

// If there is no such id, returns the unknown cause.
const RoutingCause& CauseOf(std::string_view id);

}  // namespace plumbline::analysis
