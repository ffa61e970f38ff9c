// Caches a rule's results on a site, so that it need not compare names at each of a million steps.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "analysis/frame/step.h"

namespace plumbline::analysis {

// Indexed by SiteStep::number. If that is 0, the value is computed each time. A value must depend
// only on the run, role, layer, op and options, or point to data that the rule keeps permanently.
// Not part of a state: Persist must omit it. Not thread-safe.
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

}  // namespace plumbline::analysis
