// The sites of a statistical rule that uses its part of the run's false-alarm budget by halves: one
// for the streams of sites, as they go, and one for e-BH over all sites at the run's end.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

// `Statistics` is made with the level of its stream, and returns its log_wealth().
template <typename Statistics>
class AlphaSites {
 public:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // layer, op

  explicit AlphaSites(double half) : half_(half) {}

  static Key KeyOf(const SiteStep& step) { return {step.role, step.site.layer(), step.site.op()}; }

  Statistics& Of(const SiteStep& step) {
    const auto [at, fresh] = sites_.try_emplace(KeyOf(step), 0);
    if (fresh) at->second = Statistics(half_ * shares_.Next(step.role));
    return at->second;
  }

  // Calls `visit(key, statistics, by_ebh)` for each site. `by_ebh`: e-BH names it.
  template <typename Visit>
  void AtEnd(const Visit& visit) const {
    std::vector<double> wealth;
    for (const auto& [key, site] : sites_) wealth.push_back(site.log_wealth());
    const std::vector<bool> selected = SelectByEBh(wealth, half_);
    size_t i = 0;
    for (const auto& [key, site] : sites_) visit(key, site, static_cast<bool>(selected[i++]));
  }

  // half_ is the same in each process; the level of a stream is read with it.
  void Persist(Archive& archive) {
    archive(shares_);
    archive.MapOf(sites_, [](const Key&) { return Statistics(0); });
  }

 private:
  const double half_;
  AlphaShares shares_;
  std::map<Key, Statistics> sites_;
};

// Returns each half of the budget of a rule with this alpha_weight (RuleInfo).
constexpr double HalfOfAlpha(double alpha_weight) { return alpha_weight * kRunAlpha / 2; }

}  // namespace plumbline::rules
