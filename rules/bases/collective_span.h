// The steps and ranks at which a rule saw a collective.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "analysis/frame/frame.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

using CollectiveKey = std::tuple<v1::Role, std::string, std::string>;  // layer, op

inline CollectiveKey CollectiveKeyOf(const SiteStep& step) {
  return {step.role, step.site.layer(), step.site.op()};
}

struct CollectiveSpan {
  bool any = false;
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::set<uint32_t> ranks;

  void TakeStep(const SiteStep& step) {
    if (!any) step_first = step.step;
    any = true;
    step_last = std::max(step_last, step.step);
  }
  // Takes the ranks, too.
  void Take(const SiteStep& step) {
    TakeStep(step);
    for (const Item& item : step.items) {
      if (item.evidence->has_reduction()) ranks.insert(item.source->rank());
    }
  }
  void Place(const CollectiveKey& key, v1::Verdict* verdict) const {
    SetPlace(*verdict, std::get<1>(key), std::get<2>(key), step_first, step_last, ranks);
  }
};

}  // namespace plumbline::rules
