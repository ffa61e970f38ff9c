// Plots a series as one line of block characters, with a step marked below it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/render/text_util.h"
#include "audit/session/series_collector.h"

namespace plumbline::audit {

// One value per column, for plots narrower than the series. Of each column's smallest and largest
// value, the one further from the series' median is shown, so that neither a spike nor a dip is
// lost. Steps are spread evenly, so a column may be empty.
struct SparkColumn {
  bool has_value = false;
  bool non_finite = false;  // some or all values were NaN or infinite
  double value = 0;
};
struct SparkColumns {
  std::vector<SparkColumn> columns;
  int64_t step_first = 0, step_last = 0;
  double min = 0, max = 0;  // of all finite values; undefined if there are none
  bool any_finite = false;
  int bucket_bits = 0;  // of the series

  // Returns the column of a step's bucket. For a step outside the series, returns the nearest.
  size_t ColumnOf(int64_t step) const;
};
SparkColumns ColumnsOf(const CollectedSeries& series, size_t most_columns);

// Returns three lines, each ended by a newline: the series' name, steps, minimum and maximum; the
// blocks; a mark below `onset`. If the style has no Unicode, the blocks are ASCII. A column with a
// non-finite value is '!'. If the series has no values, returns "".
std::string SparklineText(const CollectedSeries& series, int64_t onset, const TextStyle& style);

}  // namespace plumbline::audit
