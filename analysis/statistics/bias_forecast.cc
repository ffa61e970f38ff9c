#include "analysis/statistics/bias_forecast.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/bias_stream.h"

namespace plumbline::analysis {
namespace {

std::string WithSeparators(double n) {
  std::string digits = absl::StrFormat("%.0f", n);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

double TwoDigits(double n) {
  const double unit = std::pow(10.0, std::floor(std::log10(n)) - 1);
  return unit <= 1 ? std::round(n) : std::round(n / unit) * unit;
}

std::string Signed(double v) {
  const std::string magnitude =
      std::fabs(v) >= 10 ? RoundedCount(std::fabs(v)) : absl::StrFormat("%.2g", std::fabs(v));
  return (v < 0 ? "-" : "+") + magnitude;
}

}  // namespace

BiasForecast Forecast(double mean, double sd, double steps, double decay) {
  BiasForecast f;
  f.mean = mean;
  f.sd = sd;
  const double ratio = sd / mean;
  f.overtakes = mean == 0 ? std::numeric_limits<double>::infinity() : std::fmax(1, ratio * ratio);
  if (std::isnan(mean) || std::isnan(sd)) f.overtakes = std::numeric_limits<double>::quiet_NaN();
  f.steps = steps;
  f.drift = steps * mean;
  const double noise = kBiasDeviations * sd * std::sqrt(steps);
  f.drift_low = f.drift - noise;
  f.drift_high = f.drift + noise;
  f.decay = decay;
  f.settles = mean / (1 - decay);
  return f;
}

std::string RoundedCount(double n) {
  if (std::isnan(n)) return "unknown";
  if (std::isinf(n)) return n > 0 ? "infinity" : "-infinity";
  if (n < 0) return "-" + RoundedCount(-n);
  if (n < 0.5) return "0";
  const double rounded = TwoDigits(n);
  if (rounded < 1e6) return WithSeparators(rounded);
  if (rounded < 1e9) return absl::StrFormat("%.2g million", rounded / 1e6);
  if (rounded < 1e12) return absl::StrFormat("%.2g billion", rounded / 1e9);
  return absl::StrFormat("%.2g", rounded);
}

std::string ForecastWords(const BiasForecast& forecast) {
  if (std::isnan(forecast.overtakes)) return "bias and noise are unknown";
  if (std::isinf(forecast.overtakes)) return "no bias to extrapolate";
  if (forecast.overtakes <= 1) return "this bias is larger than the noise in every step";
  return absl::StrFormat("after %s steps this bias is larger than the noise",
                         RoundedCount(std::ceil(forecast.overtakes)));
}

std::string DriftWords(const BiasForecast& forecast, const std::string& unit) {
  return absl::StrFormat(
      "%s steps add up to %s %s (noise: %s); a moving average with decay %g converges to %s %s",
      RoundedCount(forecast.steps), Signed(forecast.drift), unit,
      RoundedCount((forecast.drift_high - forecast.drift_low) / 2), forecast.decay,
      Signed(forecast.settles), unit);
}

v1::Bias ToBias(const BiasStream& stream, const std::string& unit) {
  v1::Bias bias;
  bias.set_mean(stream.mean());
  bias.set_low(stream.low());
  bias.set_high(stream.high());
  bias.set_unit(unit);
  return bias;
}

google::protobuf::Struct ToStruct(const BiasForecast& f, const std::string& unit) {
  google::protobuf::Struct s;
  Put(s, "steps_to_exceed_noise", f.overtakes);
  Put(s, "steps", f.steps);
  Put(s, "drift", f.drift);
  Put(s, "drift_low", f.drift_low);
  Put(s, "drift_high", f.drift_high);
  Put(s, "decay", f.decay);
  Put(s, "settles_at", f.settles);
  Put(s, "unit", unit);
  Put(s, "words", absl::StrCat(ForecastWords(f), "; ", DriftWords(f, unit)));
  return s;
}

void FillBias(const BiasStream& stream, v1::Finding& finding, const std::string& unit) {
  finding.set_level(stream.interval_level());
  finding.set_strength(v1::STRENGTH_STATISTICAL);
  *finding.mutable_bias() = ToBias(stream, unit);
  *finding.mutable_forecast() = ToStruct(Forecast(stream.mean(), stream.sd()), unit);
  finding.mutable_measured()->set_name("mean error beyond rounding");
  finding.mutable_measured()->set_value(stream.mean());
  finding.mutable_measured()->set_unit(unit);
  finding.mutable_threshold()->set_value(kBiasBudgetUlp);
  finding.mutable_threshold()->set_source("limit of the bias test, in ulp");
  finding.set_sample_size(stream.count());
  finding.mutable_false_alarm()->set_kind("probability");
  finding.mutable_false_alarm()->set_value(stream.alpha());
  finding.add_assumptions(
      "the alarm judges the mean of errors clipped at 1, 4, 16 and 64 ulp; the interval (4.9 "
      "standard errors) is for the mean itself");
  if (stream.population_unknown()) {
    finding.add_assumptions(
        "the number of elements is not known: they are treated as draws with replacement");
  }
  if (stream.steps() == 1) {
    finding.add_assumptions("one step was observed: other steps are treated as equal");
  }
}

}  // namespace plumbline::analysis
