#include "rules/bases/loss_ends.h"

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "rules/bases/loss_rule.h"

namespace plumbline::rules {
namespace {

// Findings a run that is healthy, at most, at 95 % confidence (docs/measurements/short_runs.md).
constexpr double kEndAlarms = 2e-4;
constexpr char kEvaluationFix[] =
    "If the training loss is as it should be, check the evaluation: its data, the model's mode, "
    "which weights it loads. Else go back to the best checkpoint.";

void DescribeEnd(const LossSeries& series, const EndFigures& end, int64_t onset,
                 FindingBuilder* found) {
  const double times = std::exp(end.end - end.begin);
  found
      ->Explain(absl::StrFormat(
          "%s is %.4g (median of its newest %d points), %.3g times its start value of %.4g (first "
          "%d points). It left its lowest level in step %d, and its highest block is %.4g.",
          series.op, std::exp(end.end), end.end_of, times, std::exp(end.begin), end.begin_of, onset,
          std::exp(end.highest)))
      .Measured("end / start", times, "times")
      .Threshold(4.0 / 3, "and at least 6 standard errors of the two medians")
      .Samples(end.points)
      .FalseAlarm("measured", kEndAlarms)
      .Witness("onset_step", static_cast<double>(onset))
      .Witness("begin", std::exp(end.begin))
      .Witness("end", std::exp(end.end))
      .Witness("highest", std::exp(end.highest))
      .Witness("standard_error", end.error);
}

void DescribeLasting(const LossSeries& series, const LastingRise& rise, FindingBuilder* found) {
  const double low = series.detector.value(rise.low), end = series.detector.value(rise.end);
  const double far = rise.linear ? end - low : end / low;
  found
      ->Explain(absl::StrFormat(
          "%s is %.4g (median of its newest %d points), %s its lowest level of %.4g. It rises from "
          "step %d on, and never rose by half as much before.",
          series.op, end, rise.level_of,
          rise.linear ? absl::StrFormat("%.3g above", far) : absl::StrFormat("%.3g times", far),
          low, rise.onset_step))
      .Measured(rise.linear ? "end - lowest level" : "end / lowest level", far,
                rise.linear ? "" : "times")
      .Threshold(rise.linear ? 0 : 4.0 / 3,
                 "and 5 standard errors, and twice the largest rise before")
      .Samples(rise.points)
      .FalseAlarm("measured", kEndAlarms)
      .Witness("onset_step", static_cast<double>(rise.onset_step))
      .Witness("lowest", low)
      .Witness("end", end)
      .Witness("standard_error", rise.error)
      .Witness("points_since_lowest", static_cast<double>(rise.since));
}

}  // namespace

FindingBuilder EndsAboveFinding(const LossSeries& series, const EndFigures& end, int64_t onset) {
  // A single first point may be a partial mean.
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL);
  DescribeEnd(series, end, onset, &found);
  found.Title("the loss ends higher than it started").Cause("divergence", 0.9).Fix(kBackFix);
  PlaceOnset(series, onset, series.step_last, "divergence", &found);
  return found;
}

FindingBuilder CameBackFinding(const LossSeries& series, const EndFigures& end, int64_t onset) {
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
  DescribeEnd(series, end, onset, &found);
  found.Title("the loss was above its start value and came back")
      .Cause("recovered", 0.95)
      .Fix(kBackFix);
  PlaceOnset(series, onset, series.step_last, "recovered", &found);
  return found;
}

std::optional<FindingBuilder> EarlyBreakFinding(const LossSeries& series) {
  const EarlyBreak figures = series.detector.LookForEarlyBreak();
  if (!figures.breaks) return std::nullopt;
  const double first = std::exp(figures.first), level = std::exp(figures.level);
  const double times = level / first;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
  found.Title("the loss breaks after its first value")
      .Explain(absl::StrFormat(
          "%s is %.4g in its first row and %.4g from then on (median of %d points), %.3g times as "
          "high. It never falls below %.4g again.",
          series.op, first, level, figures.points - 2, times, std::exp(figures.lowest)))
      .Cause("divergence", 0.7)
      .Measured("level / first value", times, "times")
      .Threshold(2.5, "10 standard deviations of a point, and no fall afterwards")
      .Samples(figures.points)
      .FalseAlarm("measured", kEndAlarms)
      .Witness("onset_step", static_cast<double>(figures.step))
      .Witness("first", first)
      .Witness("level", level)
      .Witness("lowest", std::exp(figures.lowest))
      .Assume("the first row shows the same loss as the others, of the untrained model")
      .Fix(
          "Lower the learning rate or lengthen the warm-up: the first updates may have broken the "
          "model. If the first row shows another value, as of one part or of an average, do "
          "nothing.");
  PlaceOnset(series, figures.step, series.step_last, "divergence", &found);
  return found;
}

std::optional<FindingBuilder> ExplosionFinding(const LossSeries& series) {
  const ExplosionFigures figures = series.detector.LookForExplosion();
  if (!figures.explodes) return std::nullopt;
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL);
  const double end = series.detector.value(figures.end);
  const double highest = series.detector.value(figures.highest);
  const double far = figures.linear ? (end - highest) / figures.span : end / highest;
  found.Title("the loss explodes at the end of its data")
      .Explain(absl::StrFormat(
          "%s left its lowest level in step %d. It is %.4g in the end (step %d), %.3g times %s "
          "%.4g.",
          series.op, figures.rise_step, end, series.step_last, far,
          figures.linear ? "the span of all values before above their highest"
                         : "the highest value before,",
          highest))
      .Cause("divergence", 0.9)
      .Measured(figures.linear ? "rise / span before" : "end / highest before", far, "times")
      .Threshold(2, "the newest 3 points; 3 if only the last 3 steps rise")
      .Samples(figures.points)
      .FalseAlarm("measured", kEndAlarms)
      .Witness("onset_step", static_cast<double>(figures.rise_step))
      .Witness("highest", highest)
      .Witness("end", end)
      .Witness("points_above", static_cast<double>(figures.rows))
      .Fix(kBackFix);
  PlaceOnset(series, figures.rise_step, series.step_last, "divergence", &found);
  return found;
}

std::optional<FindingBuilder> LastingRiseFinding(const LossSeries& series) {
  const LastingRise rise = series.detector.FindLastingRise();
  if (!rise.rises || series.detector.GoesUpAndDown(rise.low, rise.end, rise.onset_step))
    return std::nullopt;
  FindingBuilder found(rise.half ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
  DescribeLasting(series, rise, &found);
  found.Title("the loss rises up to its end")
      .Cause("divergence", rise.half ? 0.85 : 0.6)
      .Fix(kBackFix);
  PlaceOnset(series, rise.onset_step, series.step_last, "divergence", &found);
  return found;
}

std::optional<FindingBuilder> PlungeFinding(const LossSeries& series) {
  const PlungeFigures plunge = series.detector.LookForPlunge();
  if (!plunge.plunges) return std::nullopt;
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL);
  found.Title("the loss runs to minus infinity")
      .Explain(absl::StrFormat("%s is %.4g in the end (step %d) and falls on; its first values "
                               "were at most %.4g. A loss "
                               "that has a lowest value does not fall without end.",
                               series.op, plunge.end, series.step_last, plunge.start))
      .Cause("unbounded", 0.85)
      .Measured("end / largest of the first values", plunge.end / plunge.start, "times")
      .Threshold(-1000, "the newest 3 points")
      .Samples(plunge.points)
      .FalseAlarm("measured", kEndAlarms)
      .Witness("onset_step", static_cast<double>(plunge.onset_step))
      .Witness("end", plunge.end)
      .Fix(
          "Check what the loss gets: labels of a binary cross-entropy must lie in [0, 1], NLLLoss "
          "needs log-probabilities (log_softmax), and a likelihood of a continuous value needs a "
          "lowest variance.");
  PlaceOnset(series, plunge.onset_step, series.step_last, "divergence", &found);
  return found;
}

std::optional<FindingBuilder> EvaluationRose(const LossSeries& series) {
  if (series.overfit.Look().overfits()) return std::nullopt;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
  const EndFigures end = series.detector.LookAtEnd();
  const LastingRise rise = series.detector.FindLastingRise();
  const bool above = end.above && end.end - end.begin >= std::log(2.0);
  const bool lasting = rise.half && (rise.linear || rise.end - rise.low >= std::log(2.0));
  if (!above && !lasting) return std::nullopt;
  if (above) {
    DescribeEnd(series, end, end.rise_step, &found);
  } else {
    DescribeLasting(series, rise, &found);
  }
  found
      .Title(above ? "the evaluation loss ends higher than it started"
                   : "the evaluation loss rises up to its end")
      .Cause("divergence", 0.7)
      .Fix(kEvaluationFix);
  const int64_t onset = above ? end.rise_step : rise.onset_step;
  PlaceOnset(series, onset, series.step_last, "divergence", &found);
  return found;
}

}  // namespace plumbline::rules
