// The permissions that each method of each service requires. A method that is not listed requires
// `admin` over all runs; tests/server/access_methods_test.cc fails until a new method is listed.
#pragma once

#include <string_view>
#include <vector>

#include "server/access/grant.h"

namespace plumbline::server {

struct MethodRule {
  std::string_view path;  // "/package.Service/Method"
  bool anyone = false;    // no credentials at all
  Scope scope = Scope::kAdmin;
  // True if the service calls Lease::Check for every run in the message, or leaves out what the
  // caller may not read. A caller that is restricted to some runs may call no other method.
  bool by_run = false;
};

const std::vector<MethodRule>& MethodRules();

// Returns the rule of `path`, listed or not.
MethodRule RuleOfMethod(std::string_view path);

}  // namespace plumbline::server
