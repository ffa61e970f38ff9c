#include "audit/render/series_plot.h"

#include <algorithm>
#include <cstdio>

#include "audit/render/html_text.h"
#include "audit/render/sparkline.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr double kWidth = 720, kHeight = 180;
constexpr double kLeft = 84, kRight = 12, kTop = 18, kBottom = 26;

std::string Coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

class Plot {
 public:
  Plot(const CollectedSeries& series, const SparkColumns& range) : series_(series), range_(range) {}

  double X(int64_t step) const {
    const double span =
        static_cast<double>(range_.step_last) / 2 - static_cast<double>(range_.step_first) / 2;
    if (!(span > 0)) return (kLeft + kWidth - kRight) / 2;
    const double share =
        (static_cast<double>(step) / 2 - static_cast<double>(range_.step_first) / 2) / span;
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }

  double Y(double value) const {
    const double span = range_.max / 2 - range_.min / 2;
    const double share = span > 0 ? (value / 2 - range_.min / 2) / span : 0.5;
    return kTop + (1 - share) * (kHeight - kTop - kBottom);
  }

  std::string Band() const {
    std::string upper, lower;
    for (const SeriesBucket& b : series_.buckets) {
      if (b.finite > 0) upper += Point(b.step, b.max);
    }
    for (auto b = series_.buckets.rbegin(); b != series_.buckets.rend(); ++b) {
      if (b->finite > 0) lower += Point(b->step, b->min);
    }
    return "<polygon class=\"band\" points=\"" + upper + lower + "\"/>";
  }

  // Draws the line. It is interrupted where a bucket has no finite value.
  std::string Line() const {
    std::string out, points;
    const auto flush = [&] {
      if (!points.empty()) out += "<polyline class=\"line\" points=\"" + points + "\"/>";
      points.clear();
    };
    for (const SeriesBucket& b : series_.buckets) {
      b.finite > 0 ? void(points += Point(b.step, b.last)) : flush();
    }
    flush();
    return out;
  }

  std::string NonFinite() const {
    std::string out;
    for (const SeriesBucket& b : series_.buckets) {
      if (b.non_finite == 0) continue;
      out += "<path class=\"nonfinite\" d=\"M" + Coordinate(X(b.step) - 3) + " 4l3 6l3 -6z\"/>";
    }
    return out;
  }

  std::string Onset(int64_t step) const {
    const std::string x = Coordinate(X(step));
    return "<line class=\"onset\" x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + Coordinate(kTop) +
           "\" y2=\"" + Coordinate(kHeight - kBottom) + "\"/>" +
           Label(X(step), kTop - 5, X(step) > kWidth / 2 ? "end" : "start",
                 "step " + std::to_string(step));
  }

  std::string Axes() const {
    const std::string bottom = Coordinate(kHeight - kBottom);
    std::string out = "<path class=\"axis\" d=\"M" + Coordinate(kLeft) + " " + Coordinate(kTop) +
                      "V" + bottom + "H" + Coordinate(kWidth - kRight) + "\"/>";
    if (range_.any_finite) {
      out += Label(kLeft - 6, Y(range_.max) + 4, "end", ShortNumber(range_.max));
      if (range_.min < range_.max)
        out += Label(kLeft - 6, Y(range_.min) + 4, "end", ShortNumber(range_.min));
    }
    out += Label(kLeft, kHeight - 8, "start", std::to_string(range_.step_first));
    return out + Label(kWidth - kRight, kHeight - 8, "end", std::to_string(range_.step_last));
  }

 private:
  std::string Point(int64_t step, double value) const {
    return Coordinate(X(step)) + "," + Coordinate(Y(value)) + " ";
  }

  static std::string Label(double x, double y, const char* anchor, const std::string& text) {
    return "<text x=\"" + Coordinate(x) + "\" y=\"" + Coordinate(y) + "\" text-anchor=\"" + anchor +
           "\">" + HtmlText(text) + "</text>";
  }

  const CollectedSeries& series_;
  const SparkColumns& range_;
};

// Returns the description of the plot for screen readers.
std::string PlotWords(const CollectedSeries& series, const SparkColumns& range,
                      std::optional<int64_t> onset) {
  std::string out = series.Name() + " over steps " + std::to_string(range.step_first) + " to " +
                    std::to_string(range.step_last);
  if (range.any_finite) out += ", from " + ShortNumber(range.min) + " to " + ShortNumber(range.max);
  return onset ? out + "; the finding starts at step " + std::to_string(*onset) : out;
}

}  // namespace

std::string SeriesSvg(const CollectedSeries& series, std::optional<int64_t> onset) {
  const SparkColumns range = ColumnsOf(series, 1);
  if (range.columns.empty()) return "";
  const Plot plot(series, range);
  std::string out = "<svg viewBox=\"0 0 " + Coordinate(kWidth) + " " + Coordinate(kHeight) +
                    "\" role=\"img\" aria-label=\"" + HtmlText(PlotWords(series, range, onset)) +
                    "\">" + plot.Axes();
  if (range.any_finite) out += plot.Band() + plot.Line();
  out += plot.NonFinite();
  if (onset) out += plot.Onset(*onset);
  return out + "</svg>\n";
}

}  // namespace plumbline::audit
