// What each method of each service needs of its caller. A method that is not listed needs `admin`
// over all runs: whoever adds one is told by tests/server/access_methods_test.cc.
#pragma once

#include <string_view>
#include <vector>

#include "server/access/grant.h"

namespace plumbline::server {

struct MethodRule {
  std::string_view path;  // "/package.Service/Method"
  bool anyone = false;    // no credentials at all
  Scope scope = Scope::kAdmin;
  // The service asks Lease::Check about every run that the message speaks of, or leaves out what
  // the caller may not see. Who is restricted to some runs may call no other method.
  bool by_run = false;
};

const std::vector<MethodRule>& MethodRules();

// The rule of `path`, listed or not.
MethodRule RuleOfMethod(std::string_view path);

}  // namespace plumbline::server
