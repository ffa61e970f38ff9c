// Writes the plan as one page: its tables, and a plot of compute and network time over the batch.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "audit/plan/plan_report.h"
#include "audit/plan/quantity.h"
#include "audit/render/html_style.h"
#include "audit/render/html_text.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

constexpr double kWidth = 640, kHeight = 260, kLeft = 70, kBottom = 40, kTop = 20, kRight = 110;

// Both axes are logarithmic. The axis of the batch ranges from a sixteenth to sixteen times the
// crossover or the plan's batch.
class CrossoverPlot {
 public:
  explicit CrossoverPlot(const plan::Plan& plan) : plan_(plan) {
    const double low = std::min(plan.tokens_per_gpu, plan.critical_tokens);
    const double high = std::max(plan.tokens_per_gpu, plan.critical_tokens);
    x_low_ = std::log10(low / 16);
    x_high_ = std::log10(high * 16);
    const double a = ComputeAt(std::pow(10, x_low_)), b = ComputeAt(std::pow(10, x_high_));
    y_low_ = std::log10(std::min(a, plan.network_seconds) / 2);
    y_high_ = std::log10(std::max(b, plan.network_seconds) * 2);
  }

  std::string Svg() const {
    std::string out = absl::StrFormat(
        "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"Seconds of computation and of the "
        "network, by tokens per GPU\">\n",
        kWidth, kHeight);
    out += Line("axis", x_low_, y_low_, x_high_, y_low_) +
           Line("axis", x_low_, y_low_, x_low_, y_high_);
    for (int e = static_cast<int>(std::ceil(x_low_)); e <= std::floor(x_high_); ++e)
      out += Text(X(e), kHeight - 22, "middle", QuantityText(std::pow(10, e)));
    for (int e = static_cast<int>(std::ceil(y_low_)); e <= std::floor(y_high_); ++e)
      out += Text(kLeft - 6, Y(e) + 4, "end", SecondsText(std::pow(10, e)));
    const double network = std::log10(plan_.network_seconds);
    const double right = std::log10(ComputeAt(std::pow(10, x_high_)));
    out += Line("line", x_low_, std::log10(ComputeAt(std::pow(10, x_low_))), x_high_, right);
    out += Text(kWidth - kRight + 6, Y(right) + 4, "start", "computing");
    out += Line("line", x_low_, network, x_high_, network);
    out += Text(kWidth - kRight + 6, Y(network) + 4, "start", "network");
    const double here = std::log10(plan_.tokens_per_gpu);
    out += Line("onset", here, y_low_, here, y_high_);
    out += Text(X(here), kTop - 6, "middle", "this plan");
    out += Text((kLeft + kWidth - kRight) / 2, kHeight - 4, "middle", "tokens per GPU and step");
    return out + "</svg>\n";
  }

 private:
  double ComputeAt(double tokens) const {
    return plan_.compute_seconds * tokens / plan_.tokens_per_gpu;
  }
  double X(double x) const {
    return kLeft + (x - x_low_) / (x_high_ - x_low_) * (kWidth - kLeft - kRight);
  }
  double Y(double y) const {
    return kHeight - kBottom - (y - y_low_) / (y_high_ - y_low_) * (kHeight - kBottom - kTop);
  }
  std::string Line(const char* kind, double x1, double y1, double x2, double y2) const {
    return absl::StrFormat("<path class=\"%s\" d=\"M%.1f %.1f L%.1f %.1f\"/>\n", kind, X(x1), Y(y1),
                           X(x2), Y(y2));
  }
  static std::string Text(double x, double y, const char* anchor, const std::string& text) {
    return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                           anchor, HtmlText(text));
  }

  const plan::Plan& plan_;
  double x_low_ = 0, x_high_ = 0, y_low_ = 0, y_high_ = 0;
};

std::string TableHtml(const PlanTable& table) {
  std::string out = "<h2>" + HtmlText(table.title) + "</h2>\n";
  if (!table.rows.empty()) {
    out += "<table><thead><tr>";
    for (const std::string& column : table.columns)
      out += "<th scope=\"col\">" + HtmlText(column) + "</th>";
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      out += "<tr>";
      for (const std::string& cell : row) out += "<td>" + HtmlText(cell) + "</td>";
      out += "</tr>\n";
    }
    out += "</tbody></table>\n";
  }
  return table.below.empty() ? out : out + "<p>" + HtmlText(table.below) + "</p>\n";
}

}  // namespace

std::string PlanHtml(const PlanReport& r) {
  std::string body = "<h1>Plan of a training step</h1>\n<p>" + HtmlText(PlanHeadline(r)) +
                     "</p>\n<p class=\"act\">" + HtmlText(PlanBottleneckLine(r)) + "</p>\n<ul>\n";
  for (const std::string& line : PlanVerdicts(r)) body += "<li>" + HtmlText(line) + "</li>\n";
  body += "</ul>\n";
  if (r.plan.critical_tokens > 0)
    body += "<figure>" + CrossoverPlot(r.plan).Svg() +
            "<figcaption>To the right of the intersection, computation hides the "
            "network.</figcaption></figure>\n";
  for (const PlanTable& table : PlanTables(r)) body += TableHtml(table);
  body += "<h2>Assumed</h2>\n<ul>\n";
  for (const std::string& line : PlanAssumptions(r)) body += "<li>" + HtmlText(line) + "</li>\n";
  body += "</ul>\n<p class=\"dim\">plumb " + HtmlText(BuildVersion()) + "</p>\n";
  return std::string("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n") +
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
         "initial-scale=1\">\n<title>Plumbline plan</title><style>" +
         kHtmlStyle + "</style>\n</head>\n<body>\n<main>\n" + body + "</main>\n</body>\n</html>\n";
}

}  // namespace plumbline::audit
