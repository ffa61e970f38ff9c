#include "agent/core/sites/scalar_rows.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace plumbline::agent {
namespace {

// Limit of stored orders of arrival; a trainer that logs from racing threads has many.
constexpr size_t kMaxLists = 256;

bool ByName(const Site* a, const Site* b) {
  return std::tie(a->layer, a->op) < std::tie(b->layer, b->op);
}

void AddEvidence(int64_t step, const ScalarValue& value, v1::Batch* batch) {
  v1::Evidence* e = batch->add_evidence();
  e->mutable_site()->set_layer(value.site->layer);
  e->mutable_site()->set_op(value.site->op);
  e->set_step(step);
  e->set_call(value.call);
  e->set_order(value.order);
  e->mutable_scalar()->set_value(value.value);
  e->set_sample_size(1);
}

v1::SeriesRows* RowsOf(uint64_t set, v1::Batch* batch) {
  for (v1::SeriesRows& rows : *batch->mutable_series()) {
    if (rows.set() == set) return &rows;
  }
  v1::SeriesRows* rows = batch->add_series();
  rows->set_set(set);
  rows->add_source(0);
  return rows;
}

}  // namespace

void ScalarRows::EndSteps(int64_t step, v1::Batch* batch) {
  while (!open_.empty() && open_.begin()->first <= step) {
    AddRow(open_.begin()->first, open_.begin()->second, batch);
    open_.erase(open_.begin());
  }
}

void ScalarRows::Flush(v1::Batch* batch) {
  for (const auto& [step, values] : open_) {
    for (const ScalarValue& value : values) AddEvidence(step, value, batch);
  }
  open_.clear();
}

void ScalarRows::AddRow(int64_t step, const std::vector<ScalarValue>& values, v1::Batch* batch) {
  std::vector<const Site*> sites;
  for (const ScalarValue& value : values) {
    if (value.call == 0) sites.push_back(value.site);
  }
  const List* list = sites.empty() ? nullptr : &ListOf(sites, batch);
  const bool numbered = list != nullptr && list->id != 0;
  double* row = nullptr;
  if (numbered) {
    v1::SeriesRows* rows = RowsOf(list->id, batch);
    rows->add_step(step);
    const int before = rows->value_size();
    rows->mutable_value()->Resize(before + static_cast<int>(sites.size()), 0.0);
    row = rows->mutable_value()->mutable_data() + before;
  }
  size_t column = 0;
  for (const ScalarValue& value : values) {
    if (value.call != 0 || !numbered) {
      AddEvidence(step, value, batch);
    } else {
      row[list->column[column++]] = value.value;
    }
  }
}

const ScalarRows::List& ScalarRows::ListOf(const std::vector<const Site*>& sites,
                                           v1::Batch* batch) {
  if (lists_.size() >= kMaxLists && !lists_.contains(sites)) lists_.clear();
  const auto [entry, fresh] = lists_.try_emplace(sites);
  List& list = entry->second;
  if (!fresh) return list;

  std::vector<uint32_t> order(sites.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return ByName(sites[a], sites[b]); });
  std::vector<const Site*> named;
  list.column.resize(sites.size());
  for (uint32_t column = 0; column < order.size(); ++column) {
    list.column[order[column]] = column;
    named.push_back(sites[order[column]]);
  }
  const auto known = numbers_.find(named);
  if (known != numbers_.end()) {
    list.id = known->second;
    return list;
  }
  v1::SeriesSet set;
  for (const Site* site : named) {
    v1::Site* name = set.add_sites();
    name->set_layer(site->layer);
    name->set_op(site->op);
  }
  list.id = registry_->Add(set);
  if (list.id == 0) return list;
  numbers_.emplace(std::move(named), list.id);
  set.set_id(list.id);
  *batch->add_series_sets() = std::move(set);
  return list;
}

}  // namespace plumbline::agent
