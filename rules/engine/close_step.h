// Passes the content of a closed step on: site by site to the rules, and series to the store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "rules/engine/open_steps.h"
#include "rules/engine/process_ends.h"
#include "rules/engine/rank_progress.h"
#include "rules/engine/series.h"

namespace plumbline::rules {

struct StepRows;

// Callbacks for closing steps. `site` is called for each site of a step that rules read, `series`
// for each list of series in it (empty: series are not stored), then `step` once. Evidence that
// arrived too late also goes to `site` and `series`, marked as late, once its rank has delivered
// the whole step; `late` (may be empty) is called as it arrives.
struct OnClose {
  std::function<void(const SiteStep&)> site;
  std::function<void(const StepSeries&)> series;
  std::function<void(const StepEnd&)> step;
  std::function<void(const std::string& cause, uint64_t items)> late = nullptr;
  // Called when a later attempt has begun, with the known ends of the processes of the earlier
  // attempt.
  std::function<void(const RunEnds&)> superseded = nullptr;
  // Called instead of `site`, `series` and `step` for many steps at once, if they allow it.
  // Empty: each step is passed on its own.
  std::function<void(const StepRows&)> rows = nullptr;
  // Called for items of the run that are lost if no agent reported the loss.
  std::function<void(const std::string& cause, uint64_t items)> lost = nullptr;
};

// Returns a step of no site yet.
SiteStep SiteStepOf(const StepEnd& end);

// Passes on the sites of a step. `held` is in the order of judging.
void PassSites(const SiteStep& common, const std::vector<HeldItem>& held,
               const RankProgress& progress, SeriesSets* sets, const OnClose& on_close);
// Passes on the series of a step, whose items it sorts. `resumed`: see StepSeries.
void PassSeries(const SiteStep& common, OpenStep* open, SeriesSets* sets, bool resumed,
                const OnClose& on_close);

}  // namespace plumbline::rules
