#include "rules/engine/row_steps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <string_view>

namespace plumbline::rules {
namespace {

// A list of a batch, and the first row that was not passed on yet.
struct List {
  const v1::SeriesRows* rows;
  std::shared_ptr<const SeriesColumns> columns;
  bool held = false;  // true if some rule reads its values or they are stored
  int at = 0;
  int64_t step() const {
    return at < rows->step_size() ? rows->step(at) : std::numeric_limits<int64_t>::max();
  }
  std::span<const int64_t> rest() const {
    return {rows->step().data() + at, static_cast<size_t>(rows->step_size() - at)};
  }
};

// Returns how many steps from here on have a row of each list in `now` (one bit per list), and of
// no other list that is held. A list that is not held has no row between them.
size_t CountTogether(const std::vector<List>& lists, uint32_t now) {
  const std::span<const int64_t> steps = lists[static_cast<size_t>(std::countr_zero(now))].rest();
  size_t count = std::min(steps.size(), StepRows::kMost);
  const auto before = [&](int64_t step) {
    return static_cast<size_t>(
        std::lower_bound(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(count), step) -
        steps.begin());
  };
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].held && (now >> i & 1) == 0) count = before(lists[i].step());
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::span<const int64_t> others = lists[i].rest();
    if ((now >> i & 1) != 0) {
      const auto apart = std::mismatch(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(count),
                                       others.begin(), others.end());
      count = static_cast<size_t>(apart.first - steps.begin());
    } else if (!lists[i].held) {
      for (size_t k = 0; k < others.size(); ++k) {
        const size_t at = before(others[k]);
        if (at == count) break;
        if (steps[at] != others[k]) count = at;
      }
    }
  }
  return count;
}

// Returns one list's row of a plan, as it is passed to the store.
StepSeries SeriesOf(const StepEnd& end, int64_t step, const RowPlan& plan, size_t list,
                    const SeriesRow& row, bool resumed) {
  return {end.run,          end.attempt, end.role, step,   end.world_size,
          plan.lists[list], {&row, 1},   false,    resumed};
}

}  // namespace

// Returns the site's number; 0 if there are too many sites.
uint32_t RowSteps::NumberOf(v1::Role role, const v1::Site& site) {
  constexpr size_t kMost = 4096;
  const auto known = numbers_.find({role, site.layer(), site.op()});
  if (known != numbers_.end()) return known->second;
  if (numbers_.size() >= kMost) return 0;
  const auto number = static_cast<uint32_t>(numbers_.size() + 1);
  numbers_.emplace(std::tuple(role, site.layer(), site.op()), number);
  return number;
}

RowPlan* RowSteps::PlanOf(const StepEnd& end, Plans* plans, const OpenStep& open) {
  constexpr size_t kMostPlans = 64;
  const std::vector<HeldRow>& rows = open.rows;
  if (!open.items.empty() || rows.empty() || rows.size() > RowPlan::kMostRows) return nullptr;
  lists_.clear();
  for (const HeldRow& held : rows) {
    if (held.source->rank() != rows.front().source->rank()) return nullptr;
    lists_.push_back(held.columns.get());
  }
  auto known = plans->by_lists.find(lists_);
  if (known == plans->by_lists.end()) {
    if (plans->by_lists.size() >= kMostPlans) {  // plans whose lists come again are made again
      plans->by_lists.clear();
      plans->sites = 0;
    }
    known = plans->by_lists.try_emplace(lists_).first;
    for (const HeldRow& held : rows) known->second.lists.push_back(held.columns);
  }
  RowPlan& plan = known->second;
  if (plan.made) return &plan;
  if (++plan.steps != RowPlan::kComesAgain) return nullptr;
  return MakePlan(end, plans, &plan) ? &plan : nullptr;
}

// Makes the plan. Returns false if a site occurs twice, or if there are too many sites.
bool RowSteps::MakePlan(const StepEnd& end, Plans* plans, RowPlan* plan) {
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
  if (plans->sites + order.size() > kMostSites ||
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
    site.step = SiteStepOf(end);
    site.step.site = *place.site;
    site.step.number = NumberOf(end.role, *place.site);
    site.step.items = {{nullptr, &site.evidence}};
  }
  plans->sites += order.size();
  return plan->made = true;
}

void RowSteps::Close(const StepEnd& end, const OpenStep& open, RowPlan* plan,
                     const RankProgress& progress, bool resumed, const OnClose& on_close) {
  std::array<SeriesRow, RowPlan::kMostRows> rows;
  for (size_t i = 0; i < open.rows.size(); ++i) rows[i] = open.rows[i].view();
  const uint32_t rank = rows[0].rank;
  // No rank is missing if the only known rank is present and it is the whole world.
  const bool all = progress.seen() == 1 && end.world_size == 1 && rank == 0;
  missing_.clear();
  if (!all) missing_ = progress.Missing(end.step, end.world_size, {rank}, SiteStep::kNamedMissing);
  for (RowPlan::Site& site : plan->sites) {
    const SeriesRow& row = rows[site.row];
    if (!row.present(site.column)) continue;
    site.evidence.set_step(end.step);
    site.evidence.mutable_scalar()->set_value(row.values[site.column]);
    site.step.step = end.step;
    site.step.world_size = end.world_size;
    site.step.items.front().source = open.rows[site.row].source;
    if (!missing_.empty() || !site.step.missing_ranks.empty()) site.step.missing_ranks = missing_;
    on_close.site(site.step);
    site.step.cache.Clear();
  }
  if (!on_close.series) return;
  for (const size_t i : plan->by_key)
    on_close.series(SeriesOf(end, end.step, *plan, i, rows[i], resumed));
}

// ---- batches of rows that need not wait --------------------------------------------------------

std::optional<StraightRows> StraightRowsOf(const v1::Batch& batch) {
  if (!batch.evidence().empty() || batch.series().empty() ||
      batch.series_size() > static_cast<int>(RowPlan::kMostRows))
    return std::nullopt;
  const uint32_t index = batch.series(0).source_size() == 1 ? batch.series(0).source(0) : 0;
  StraightRows of{nullptr, std::numeric_limits<int64_t>::max(), RankProgress::kNever};
  for (const v1::SeriesRows& rows : batch.series()) {
    const auto& steps = rows.step();
    if (rows.source_size() != 1 || rows.source(0) != index || !rows.absent().empty() ||
        steps.empty() ||
        std::adjacent_find(steps.begin(), steps.end(), std::greater_equal<>()) != steps.end())
      return std::nullopt;
    of.first = std::min(of.first, steps[0]);
    of.last = std::max(of.last, steps[steps.size() - 1]);
  }
  bool whole = false;
  for (const v1::Progress& progress : batch.progress()) {
    if (progress.source() != index) return std::nullopt;
    whole |= progress.any_step() && progress.complete_through() >= of.last;
  }
  if (!whole || of.last == std::numeric_limits<int64_t>::max()) return std::nullopt;
  of.source = &batch.sources(static_cast<int>(index));
  return of;
}

void RowSteps::CloseStraight(const StepEnd& end, Plans* plans,
                             const std::shared_ptr<const v1::Batch>& batch, const SeriesSets& sets,
                             bool resumed, int64_t* closed, const CloseOne& one,
                             const OnClose& on_close) {
  const v1::Source& source = batch->sources(static_cast<int>(batch->series(0).source(0)));
  std::vector<List> lists;
  for (const v1::SeriesRows& rows : batch->series()) {
    List& list = lists.emplace_back(List{&rows, sets.Find(batch->stream_id(), rows.set())});
    list.held = on_close.series || !list.columns->read.empty();
  }
  const auto by_step = [](const List& a, const List& b) { return a.step() < b.step(); };
  uint32_t held = 0;  // one bit per list of straight_
  RowPlan* plan = nullptr;
  straight_ = {};
  while (true) {
    const List& next = *std::min_element(lists.begin(), lists.end(), by_step);
    if (next.at == next.rows->step_size()) break;
    const int64_t step = next.step();
    // The lists are usually those of the step before; only their rows change.
    uint32_t now = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].step() == step && lists[i].held) now |= 1u << i;
    }
    if (now != held) {
      straight_.rows.clear();
      for (size_t i = 0; i < lists.size(); ++i) {
        if ((now >> i & 1) != 0)
          straight_.rows.push_back({batch, lists[i].rows, 0, &source, lists[i].columns});
      }
      plan = nullptr;
      held = now;
    }
    if (plan == nullptr) plan = PlanOf(end, plans, straight_);
    // Steps that have these lists, and no others that are held, are passed on together.
    const bool none_missing = end.world_size == 0 || source.rank() == 0;
    size_t count = 1;
    if (plan != nullptr && on_close.rows && none_missing) count = CountTogether(lists, now);
    if (count < StepRows::kFewest) count = 1;
    size_t row = 0;
    int64_t last = step;
    for (size_t i = 0; i < lists.size(); ++i) {
      if ((now >> i & 1) == 0) continue;
      straight_.rows[row++].row = lists[i].at;
      lists[i].at += static_cast<int>(count);
      last = lists[i].rows->step(lists[i].at - 1);
    }
    for (List& list : lists) {
      while (!list.held && list.step() <= last) ++list.at;
    }
    *closed = last;
    if (count == 1) {
      one(step, &straight_, plan);
    } else {
      PassRows(end, count, plan, resumed, on_close);
    }
  }
  straight_ = {};
}

// Passes on the rows in straight_, and `count` - 1 more rows of each of their lists.
void RowSteps::PassRows(const StepEnd& end, size_t count, RowPlan* plan, bool resumed,
                        const OnClose& on_close) {
  std::vector<ScalarColumn> columns;
  for (RowPlan::Site& site : plan->sites) {
    const HeldRow& first = straight_.rows[site.row];
    site.step.world_size = end.world_size;
    site.step.items.front().source = first.source;
    site.step.missing_ranks.clear();
    columns.push_back({&site.step, &site.evidence, first.view().values + site.column,
                       first.columns->sites.size()});
  }
  const HeldRow& first = straight_.rows.front();
  StepRows steps;
  steps.rows = {{end.run, end.attempt, end.role, 0, end.world_size},
                {first.rows->step().data() + first.row, count},
                columns};
  if (on_close.series) {
    steps.store = [&](size_t row) {
      const int64_t step = steps.rows.steps[row];
      for (const size_t i : plan->by_key) {
        HeldRow held = straight_.rows[i];
        held.row += static_cast<int>(row);
        const SeriesRow view = held.view();
        on_close.series(SeriesOf(end, step, *plan, i, view, resumed));
      }
    };
  }
  on_close.rows(steps);
}

}  // namespace plumbline::rules
