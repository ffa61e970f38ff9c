// A series as a plot: inline SVG that needs no script, no font and no network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "audit/session/series_collector.h"

namespace plumbline::audit {

// One <svg> element: the range of each bucket as a band, the newest value as a line, `onset` as a
// dashed line, values that are not finite as marks above. At most SeriesCollector::kMostBuckets
// points. Colours are the classes of the page's style sheet (html_style.h). Empty for a series
// without values.
std::string SeriesSvg(const CollectedSeries& series, std::optional<int64_t> onset);

}  // namespace plumbline::audit
