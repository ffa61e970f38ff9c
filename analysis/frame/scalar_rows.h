// Many steps of one rank's scalars by column, as in a log.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/frame/step.h"

namespace plumbline::analysis {

// One site's values, one row per step. Pointers are valid during the call only.
struct ScalarColumn {
  SiteStep* step = nullptr;          // the SiteStep for Judge; its one item is `evidence`
  v1::Evidence* evidence = nullptr;  // a scalar
  const double* values = nullptr;    // of the first row
  size_t stride = 1;                 // distance from one row's value to the next

  double value(size_t row) const { return values[row * stride]; }
  // For every row: everything in `step` except the step number and the value.
  const SiteStep& any() const { return *step; }
  const v1::Source& source() const { return *step->items.front().source; }
  // Changes `step` to that of the row.
  void Show(size_t row, int64_t at) const {
    evidence->set_step(at);
    evidence->mutable_scalar()->set_value(value(row));
    step->step = at;
  }
};

// Each step is complete, has a value in each column, and no other evidence.
struct ScalarRows {
  StepEnd end;                     // of each step, except for its number
  std::span<const int64_t> steps;  // ascending
  std::span<const ScalarColumn>
      columns;  // columns that the rule reads, in the order of Judge; may be empty

  size_t size() const { return steps.size(); }
  bool Has(std::string_view op) const {
    return std::any_of(columns.begin(), columns.end(),
                       [op](const ScalarColumn& column) { return column.any().site.op() == op; });
  }
  // Returns the columns for whose SiteStep `is` returns true.
  template <typename Is>
  std::vector<ScalarColumn> Of(const Is& is) const {
    std::vector<ScalarColumn> of;
    std::copy_if(columns.begin(), columns.end(), std::back_inserter(of),
                 [&](const ScalarColumn& column) { return is(column.any()); });
    return of;
  }
  // Returns how many rows from `first` on have only finite values.
  size_t Finite(size_t first) const {
    size_t finite = size() - first;
    for (const ScalarColumn& column : columns) {
      size_t i = 0;
      while (i < finite && std::isfinite(column.value(first + i))) ++i;
      finite = i;
    }
    return finite;
  }
};

// Returns the largest magnitude of a row's finite values. If there are none, returns nullopt.
inline std::optional<double> LargestOf(std::span<const ScalarColumn> columns, size_t row) {
  std::optional<double> largest;
  for (const ScalarColumn& column : columns) {
    const double value = column.value(row);
    if (std::isfinite(value)) largest = std::max(largest.value_or(0), std::fabs(value));
  }
  return largest;
}

}  // namespace plumbline::analysis
