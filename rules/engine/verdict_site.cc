#include "rules/engine/run_state.h"

namespace plumbline::rules {
namespace {

// Names only the first ranks of a run, because the cost of each verdict must not grow with the
// number of ranks.
void NameRanksOf(const RunState& state, v1::FindingSite* site) {
  constexpr int kNamed = 1024;
  for (const uint32_t rank : state.ranks()) {
    if (site->ranks_size() >= kNamed) return;
    site->add_ranks(rank);
  }
}

}  // namespace

void FillSite(const RunState& state, const SiteStep* step, v1::FindingSite* site) {
  site->set_run(state.summary().run);
  if (step == nullptr) {
    if (site->ranks().empty()) NameRanksOf(state, site);
    return;
  }
  if (site->layer().empty() && site->op().empty()) {
    site->set_layer(step->site.layer());
    site->set_op(step->site.op());
  }
  if (site->step_first() == 0 && site->step_last() == 0) {
    site->set_step_first(step->step);
    site->set_step_last(step->step);
  }
  if (!site->ranks().empty()) return;
  // Items are sorted by rank, so several items of one rank are adjacent.
  for (const Item& item : step->items) {
    const uint32_t rank = item.source->rank();
    if (site->ranks().empty() || site->ranks(site->ranks_size() - 1) != rank) site->add_ranks(rank);
  }
}

}  // namespace plumbline::rules
