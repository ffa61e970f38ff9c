// Rules whose findings another component reports. They have a page and a place in the register, and
// judge no evidence.
#pragma once

#include <memory>

#include "rules/catalogue.h"

namespace plumbline::rules {

class HostReportedRule : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Persist(Archive& /*archive*/) override {}
};

inline std::unique_ptr<Rule> MakeHostReportedRule(const Options& /*options*/) {
  return std::make_unique<HostReportedRule>();
}

}  // namespace plumbline::rules
