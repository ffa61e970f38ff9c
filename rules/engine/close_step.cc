#include "rules/engine/close_step.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>

namespace plumbline::rules {

SiteStep SiteStepOf(const StepEnd& end) {
  SiteStep common;
  common.run = end.run;
  common.attempt = end.attempt;
  common.role = end.role;
  common.step = end.step;
  common.world_size = end.world_size;
  return common;
}

void PassSites(const SiteStep& common, const std::vector<HeldItem>& held,
               const RankProgress& progress, SeriesSets* sets, const OnClose& on_close) {
  SiteStep site_step = common;
  for (size_t begin = 0; begin < held.size();) {
    site_step.site = held[begin].evidence->site();
    site_step.items.clear();
    site_step.missing_ranks.clear();
    site_step.cache.Clear();
    bool scalars = true, read = false;
    size_t end = begin, ranks = 0;  // sorted, so that distinct ones can be counted
    for (; end < held.size(); ++end) {
      const v1::Site& site = held[end].evidence->site();
      if (site.layer() != site_step.site.layer() || site.op() != site_step.site.op()) break;
      site_step.items.push_back({held[end].source, held[end].evidence});
      if (end == begin || held[end].source->rank() != held[end - 1].source->rank()) ++ranks;
      scalars &= held[end].evidence->has_scalar();
      read |= held[end].read;
    }
    begin = end;
    if (scalars && !read && sets->Single(site_step.site)->read.empty()) continue;
    // No rank is missing if all known ranks are present and they form the whole world.
    const bool all = ranks == progress.seen() && ranks == common.world_size &&
                     held[end - 1].source->rank() < common.world_size;
    if (!all) {
      std::set<uint32_t> present;
      for (const Item& item : site_step.items) present.insert(item.source->rank());
      site_step.missing_ranks =
          progress.Missing(common.step, common.world_size, present, SiteStep::kNamedMissing);
    }
    on_close.site(site_step);
  }
}

void PassSeries(const SiteStep& common, OpenStep* open, SeriesSets* sets, bool resumed,
                const OnClose& on_close) {
  struct Entry {
    std::shared_ptr<const SeriesColumns> columns;
    SeriesRow row;
  };
  std::vector<Entry> entries;
  entries.reserve(open->rows.size());
  for (const HeldRow& held : open->rows) entries.push_back({held.columns, held.view()});
  // If scalars came one by one, the last call of a step counts.
  std::deque<double> values;
  std::stable_sort(
      open->items.begin(), open->items.end(),
      [](const HeldItem& a, const HeldItem& b) { return a.evidence->call() < b.evidence->call(); });
  for (const HeldItem& held : open->items) {
    if (!held.evidence->has_scalar()) continue;
    values.push_back(held.evidence->scalar().value());
    entries.push_back(
        {sets->Single(held.evidence->site()), {held.source->rank(), &values.back(), nullptr, 0}});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.columns != b.columns) return a.columns->key < b.columns->key;
    return a.row.rank < b.row.rank;
  });
  std::vector<SeriesRow> rows;
  for (size_t begin = 0; begin < entries.size();) {
    rows.clear();
    size_t end = begin;
    for (; end < entries.size() && entries[end].columns == entries[begin].columns; ++end)
      rows.push_back(entries[end].row);
    on_close.series({common.run, common.attempt, common.role, common.step, common.world_size,
                     entries[begin].columns, rows, common.late, resumed});
    begin = end;
  }
}

}  // namespace plumbline::rules
