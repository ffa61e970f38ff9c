// A series as one line of blocks in a terminal, with a step marked below it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/render/text_util.h"
#include "audit/session/series_collector.h"

namespace plumbline::audit {

// One value a column, for lines and plots that are narrower than the series: of each column's
// smallest and largest value the one that is further from the series' median, so that neither a
// spike nor a dip is lost. Steps are spread evenly, so a column may be empty.
struct SparkColumn {
  bool has_value = false;
  bool non_finite = false;  // also, or only, values that were NaN or infinite
  double value = 0;
};
struct SparkColumns {
  std::vector<SparkColumn> columns;
  int64_t step_first = 0, step_last = 0;
  double min = 0, max = 0;  // of all finite values; meaningless when there are none
  bool any_finite = false;
  int bucket_bits = 0;  // of the series

  // The column where the bucket of a step is drawn; of a step outside the series, the nearest.
  size_t ColumnOf(int64_t step) const;
};
SparkColumns ColumnsOf(const CollectedSeries& series, size_t most_columns);

// Three lines, each ended by a newline: the series' name, steps, minimum and maximum; the blocks; a
// mark below `onset`. Where the style has no Unicode the blocks are ASCII. A column with a value
// that is not finite is '!'. Empty for a series without values.
std::string SparklineText(const CollectedSeries& series, int64_t onset, const TextStyle& style);

}  // namespace plumbline::audit
