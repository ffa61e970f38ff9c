// Extrapolates a measured bias over more steps: noise grows with the square root, bias linearly.
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

class BiasStream;

// Forecast for a bias `mean` per step with noise `sd` per step, both in `unit`.
struct BiasForecast {
  double mean = 0;
  double sd = 0;
  double overtakes = 0;  // n* = (sd / mean)^2, at least 1; infinity if there is no bias
  double steps = 0;      // horizon n of `drift`
  double drift = 0;      // n mean, and n mean ± 4.9 sd sqrt(n)
  double drift_low = 0;
  double drift_high = 0;
  double decay = 0;    // of an average that takes one such value per step
  double settles = 0;  // mean / (1 - decay)
};
BiasForecast Forecast(double mean, double sd, double steps = 10000, double decay = 0.9);

// Returns a count with two significant digits and separators: 12,345 gives "12,000"; from a million
// on "1.2 million"; from 1e15 on "1.2e+15". Infinity gives "infinity", NaN "unknown".
std::string RoundedCount(double n);

// Returns the words for n*: "after 12,000 steps this bias is larger than the noise". If the bias is
// larger at once, the text states that. If there is no bias, returns "no bias to extrapolate".
std::string ForecastWords(const BiasForecast& forecast);
// Returns "10,000 steps add up to -2,000 ± 250 ulp; an average of decay 0.9 settles at -2.0 ulp".
std::string DriftWords(const BiasForecast& forecast, const std::string& unit);

// Returns the stream's v1::Bias: unclipped mean, low, high.
v1::Bias ToBias(const BiasStream& stream, const std::string& unit = "ulp");

// Returns a struct with the keys steps_to_exceed_noise, steps, drift, drift_low, drift_high, decay,
// settles_at, unit, words.
google::protobuf::Struct ToStruct(const BiasForecast& forecast, const std::string& unit = "ulp");

// Fills a finding's bias, forecast, measured ("mean error beyond rounding"), threshold (the
// budget), sample_size, false_alarm (alpha, a probability), level (of the interval) and strength
// (statistical), and adds the assumptions of the test.
void FillBias(const BiasStream& stream, v1::Finding& finding, const std::string& unit = "ulp");

}  // namespace plumbline::analysis
