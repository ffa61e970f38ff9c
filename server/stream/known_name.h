// A name that the rule engine keeps of a run: of a site, or of a loss.
#pragma once

#include <string>

namespace plumbline::server {

struct KnownName {
  std::string run;
  std::string layer, op;
  std::string cause;  // of a loss; empty: it is the name of a site
};

}  // namespace plumbline::server
