// Rules whose findings another component reports. They have a page and a place in the register, and
// judge no evidence.
#pragma once

#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {

class ToldRule : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Persist(Archive& /*archive*/) override {}
};

inline std::unique_ptr<Rule> MakeToldRule(const Options& /*options*/) {
  return std::make_unique<ToldRule>();
}

}  // namespace plumbline::rules
