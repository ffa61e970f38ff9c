#include "rules/engine/run_state.h"

namespace plumbline::rules {
namespace {

// Of the whole run the first ones alone: each verdict would cost as much as there are ranks.
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
  // Items are in order of their ranks: several of one rank stand together.
  for (const Item& item : step->items) {
    const uint32_t rank = item.source->rank();
    if (site->ranks().empty() || site->ranks(site->ranks_size() - 1) != rank) site->add_ranks(rank);
  }
}

}  // namespace plumbline::rules
