// Plots a series as inline SVG that needs no script, font or network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "audit/session/series_collector.h"

namespace plumbline::audit {

// Returns one <svg> element: the range of each bucket as a band, the newest value as a line,
// `onset` as a dashed line, non-finite values as marks above. At most SeriesCollector::kMostBuckets
// points. Colours are classes of the page's style sheet (html_style.h). If the series has no
// values, returns "".
std::string SeriesSvg(const CollectedSeries& series, std::optional<int64_t> onset);

}  // namespace plumbline::audit
