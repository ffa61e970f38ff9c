#include "rules/engine/refused.h"

#include <algorithm>
#include <map>

#include "rules/engine/series.h"

namespace plumbline::rules {
namespace {

struct Items {
  uint64_t count = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;

  void Add(uint64_t items, int64_t step) {
    if (items == 0) return;
    step_first = count == 0 ? step : std::min(step_first, step);
    step_last = count == 0 ? step : std::max(step_last, step);
    count += items;
  }
};

// Returns the number of values of a row. The rows may be malformed.
uint64_t ValuesOf(const v1::SeriesRows& rows, int row) {
  const auto values = static_cast<size_t>(rows.value_size());
  const bool bits_fit = rows.absent().empty() || rows.absent().size() >= (values + 7) / 8;
  if (bits_fit) return CountPresent(rows, row);
  return values / static_cast<size_t>(rows.step_size());
}

// Returns the batch's items by source index.
std::map<uint32_t, Items> ItemsOf(const v1::Batch& batch) {
  std::map<uint32_t, Items> items;
  for (const v1::Evidence& evidence : batch.evidence())
    items[evidence.source()].Add(1, evidence.step());
  for (const v1::SeriesRows& rows : batch.series()) {
    for (int row = 0; row < rows.step_size(); ++row) {
      if (rows.source_size() != 1 && row >= rows.source_size()) break;
      const uint32_t source = rows.source(rows.source_size() == 1 ? 0 : row);
      items[source].Add(ValuesOf(rows, row), rows.step(row));
    }
  }
  return items;
}

template <typename Entries>
void CopyOf(const Entries& entries, int sources, Entries* out) {
  for (const auto& entry : entries) {
    if (entry.source() < static_cast<uint32_t>(sources)) *out->Add() = entry;
  }
}

}  // namespace

v1::Batch WithoutRefused(const v1::Batch& batch) {
  v1::Batch rest;
  rest.set_stream_id(batch.stream_id());
  rest.set_sequence(batch.sequence());
  *rest.mutable_sources() = batch.sources();
  CopyOf(batch.progress(), batch.sources_size(), rest.mutable_progress());
  CopyOf(batch.declarations(), batch.sources_size(), rest.mutable_declarations());
  CopyOf(batch.losses(), batch.sources_size(), rest.mutable_losses());
  for (const auto& [source, items] : ItemsOf(batch)) {
    if (source >= static_cast<uint32_t>(batch.sources_size()) || items.count == 0) continue;
    v1::Loss& loss = *rest.add_losses();
    loss.set_source(source);
    loss.set_cause(kRefusedLoss);
    loss.mutable_site();
    loss.set_count(items.count);
    loss.set_step_first(items.step_first);
    loss.set_step_last(items.step_last);
  }
  return rest;
}

}  // namespace plumbline::rules
