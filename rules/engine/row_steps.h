// Handles steps that are one rank's rows of a few lists of series, as nearly all steps of a log of
// scalars are. The rules receive the same as for any other step, at a fraction of the cost: a plan
// holds the prepared sites of lists that came before, and only the values are new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "rules/engine/close_step.h"
#include "rules/engine/open_steps.h"
#include "rules/engine/rank_progress.h"
#include "rules/engine/series.h"

namespace plumbline::rules {

struct RowPlan {
  // A list gets a plan when it comes again, because some streams use another one in each step.
  static constexpr uint32_t kComesAgain = 4;
  static constexpr size_t kMostRows = 8;
  struct Site {
    size_t row = 0;  // index of the step's row
    uint32_t column = 0;
    v1::Evidence evidence;  // complete, except step and value
    SiteStep step;          // complete, except what differs per step; its one item is `evidence`
  };

  uint32_t steps = 0;  // seen so far
  bool made = false;
  // by row: shared so that they stay alive
  std::vector<std::shared_ptr<const SeriesColumns>> lists;
  // those that some rule reads, in the order of judging; their addresses are stable
  std::deque<Site> sites;
  std::vector<size_t> by_key;  // rows, in the order in which they are passed to the store
};

// Steps of one rank with one row of every list of one plan. They may be judged together.
struct StepRows {
  static constexpr size_t kFewest = 8;  // fewer are cheaper one by one
  static constexpr size_t kMost = 256;  // so that their values stay in the L1 cache, rule by rule
  ScalarRows rows;                      // all columns that some rule reads
  // Called for each row, after the verdicts on its sites and before those at its end. Empty: rows
  // are not stored.
  std::function<void(size_t row)> store;
};

// Rows of one source that need not wait, if nothing else is awaited: complete, in the order of
// their steps, and reported as complete by their batch.
struct StraightRows {
  const v1::Source* source = nullptr;
  int64_t first = 0, last = 0;  // steps
};
// Returns nothing if the batch holds anything else.
std::optional<StraightRows> StraightRowsOf(const v1::Batch& batch);

class RowSteps {
 public:
  // The plans of one group, by the lists of a step's rows, and the number of sites they hold.
  struct Plans {
    std::map<std::vector<const SeriesColumns*>, RowPlan> by_lists;
    size_t sites = 0;
  };

  // Returns the plan for the step's rows; nullptr if none was made, or none can be.
  RowPlan* PlanOf(const StepEnd& end, Plans* plans, const OpenStep& open);
  // Passes on the sites and series of a step that has a plan.
  void Close(const StepEnd& end, const OpenStep& open, RowPlan* plan, const RankProgress& progress,
             bool resumed, const OnClose& on_close);

  // Closes the steps of a batch of StraightRows in order. Sets *closed before each step is passed
  // on. Steps that cannot be passed on together go to `one`. The number in `end` is not used.
  using CloseOne = std::function<void(int64_t step, OpenStep* open, RowPlan* plan)>;
  void CloseStraight(const StepEnd& end, Plans* plans,
                     const std::shared_ptr<const v1::Batch>& batch, const SeriesSets& sets,
                     bool resumed, int64_t* closed, const CloseOne& one, const OnClose& on_close);

 private:
  bool MakePlan(const StepEnd& end, Plans* plans, RowPlan* plan);
  uint32_t NumberOf(v1::Role role, const v1::Site& site);
  void PassRows(const StepEnd& end, size_t count, RowPlan* plan, bool resumed,
                const OnClose& on_close);

  std::map<std::tuple<v1::Role, std::string, std::string>, uint32_t> numbers_;  // of sites
  // Reused memory.
  std::vector<uint32_t> missing_;
  std::vector<const SeriesColumns*> lists_;
  OpenStep straight_;
};

}  // namespace plumbline::rules
