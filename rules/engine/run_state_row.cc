// Handles a step that is one rank's rows of a few lists of series, as nearly all steps of a log of
// scalars are. The rules receive the same as for any other step, at a fraction of the cost.
#include <algorithm>
#include <array>
#include <tuple>

#include "rules/engine/run_state.h"

namespace plumbline::rules {

// Returns the site's number; 0 if there are too many sites.
uint32_t RunState::NumberOf(v1::Role role, const v1::Site& site) {
  constexpr size_t kMost = 4096;
  const auto known = numbers_.find({role, site.layer(), site.op()});
  if (known != numbers_.end()) return known->second;
  if (numbers_.size() >= kMost) return 0;
  const auto number = static_cast<uint32_t>(numbers_.size() + 1);
  numbers_.emplace(std::tuple(role, site.layer(), site.op()), number);
  return number;
}

// Returns the plan for the rows; nullptr if none was made, or none can be.
RowPlan* RunState::PlanOf(const GroupKey& key, Group& group, const OpenStep& open) {
  constexpr size_t kMostPlans = 64;
  const std::vector<HeldRow>& rows = open.rows;
  if (!open.items.empty() || rows.empty() || rows.size() > RowPlan::kMostRows) return nullptr;
  lists_.clear();
  for (const HeldRow& held : rows) {
    if (held.source->rank() != rows.front().source->rank()) return nullptr;
    lists_.push_back(held.columns.get());
  }
  auto known = group.plans.find(lists_);
  if (known == group.plans.end()) {
    if (group.plans.size() >= kMostPlans) {  // plans whose lists come again are made again
      group.plans.clear();
      group.planned = 0;
    }
    known = group.plans.try_emplace(lists_).first;
    for (const HeldRow& held : rows) known->second.lists.push_back(held.columns);
  }
  RowPlan& plan = known->second;
  if (plan.made) return &plan;
  if (++plan.steps != RowPlan::kComesAgain) return nullptr;
  return MakePlan(key, group, &plan) ? &plan : nullptr;
}

// Makes the plan. Returns false if a site occurs twice, or if there are too many sites.
bool RunState::MakePlan(const GroupKey& key, Group& group, RowPlan* plan) {
  constexpr size_t kMostSites = 4096;  // of all plans
  struct Place {
    size_t row;
    uint32_t column;
    const v1::Site* site;
    auto name() const {
      return std::tuple(std::string_view(site->layer()), std::string_view(site->op()));
    }
  };
  std::vector<Place> order;
  for (size_t row = 0; row < plan->lists.size(); ++row) {
    for (const uint32_t column : plan->lists[row]->read)
      order.push_back({row, column, &plan->lists[row]->sites[column]});
    plan->by_key.push_back(row);
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.name() < b.name(); });
  const auto same = [](const Place& a, const Place& b) { return a.name() == b.name(); };
  const auto key_of = [&](size_t row) -> const std::string& { return plan->lists[row]->key; };
  std::sort(plan->by_key.begin(), plan->by_key.end(),
            [&](size_t a, size_t b) { return key_of(a) < key_of(b); });
  const auto again = [&](size_t a, size_t b) { return key_of(a) == key_of(b); };
  if (group.planned + order.size() > kMostSites ||
      std::adjacent_find(order.begin(), order.end(), same) != order.end() ||
      std::adjacent_find(plan->by_key.begin(), plan->by_key.end(), again) != plan->by_key.end())
    return false;
  for (const Place& place : order) {
    RowPlan::Site& site = plan->sites.emplace_back();
    site.row = place.row;
    site.column = place.column;
    *site.evidence.mutable_site() = *place.site;
    site.evidence.mutable_scalar();
    site.evidence.set_sample_size(1);
    site.step = CommonOf(key, group, 0);
    site.step.site = *place.site;
    site.step.number = NumberOf(key.second, *place.site);
    site.step.items = {{nullptr, &site.evidence}};
  }
  group.planned += order.size();
  return plan->made = true;
}

void RunState::CloseRow(const GroupKey& key, Group& group, int64_t step, const OpenStep& open,
                        RowPlan* plan, const OnClose& on_close) {
  std::array<SeriesRow, RowPlan::kMostRows> rows;
  for (size_t i = 0; i < open.rows.size(); ++i) rows[i] = open.rows[i].view();
  const uint32_t rank = rows[0].rank;
  // No rank is missing if the only known rank is present and it is the whole world.
  const bool all = group.progress.seen() == 1 && group.world_size == 1 && rank == 0;
  missing_.clear();
  if (!all)
    missing_ = group.progress.Missing(step, group.world_size, {rank}, SiteStep::kNamedMissing);
  for (RowPlan::Site& site : plan->sites) {
    const SeriesRow& row = rows[site.row];
    if (!row.present(site.column)) continue;
    site.evidence.set_step(step);
    site.evidence.mutable_scalar()->set_value(row.values[site.column]);
    site.step.step = step;
    site.step.world_size = group.world_size;
    site.step.items.front().source = open.rows[site.row].source;
    if (!missing_.empty() || !site.step.missing_ranks.empty()) site.step.missing_ranks = missing_;
    on_close.site(site.step);
    site.step.cache.Clear();
  }
  if (!on_close.series) return;
  for (const size_t i : plan->by_key)
    on_close.series(SeriesOf(key, group, step, *plan, i, rows[i]));
}

RunState::OpenStep& RunState::AddOpen(Group& group, int64_t step) {
  if (spare_.empty()) return group.open.emplace_hint(group.open.end(), step, OpenStep())->second;
  StepNode node = std::move(spare_.back());
  spare_.pop_back();
  node.key() = step;
  return group.open.insert(group.open.end(), std::move(node))->second;
}

// Keeps a closed step's memory for reuse: there are millions of steps, and most are as small as the
// one before. An audit opens thousands before it closes one; a server has many runs.
void RunState::KeepSpare(StepNode node) {
  constexpr size_t kMost = 4096, kMostHosted = 16, kSmall = 8;
  OpenStep& open = node.mapped();
  if (spare_.size() >= (options_.hosted ? kMostHosted : kMost) || open.items.capacity() > kSmall ||
      open.rows.capacity() > kSmall)
    return;
  open.items.clear();
  open.rows.clear();
  open.bytes = 0;
  spare_.push_back(std::move(node));
}

}  // namespace plumbline::rules
