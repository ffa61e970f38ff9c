// What a rule found out about a site, so that it need not compare names at each of a million steps.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "analysis/frame/step.h"

namespace plumbline::rules {

// By SiteStep::number; of a site without one it is found anew each time. A Value follows from the
// run, role, layer, op and options alone, or points to what the rule keeps of them for ever. Never
// part of a state: Persist leaves it out. Not thread-safe.
template <typename Value>
class SiteMemo {
 public:
  // Valid until the next call.
  template <typename Make>
  Value& Of(const SiteStep& step, const Make& make) {
    if (step.number == 0) return passing_.emplace(make());
    if (step.number >= known_.size()) known_.resize(size_t{step.number} + 1);
    std::optional<Value>& known = known_[step.number];
    if (!known) known.emplace(make());
    return *known;
  }

 private:
  std::vector<std::optional<Value>> known_;
  std::optional<Value> passing_;
};

}  // namespace plumbline::rules
