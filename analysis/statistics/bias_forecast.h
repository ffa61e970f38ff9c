// What a measured bias will have done after more steps: noise adds up by the root, bias in full.
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

class BiasStream;

// Of a bias `mean` a step with noise `sd` a step, both in `unit`.
struct BiasForecast {
  double mean = 0;
  double sd = 0;
  double overtakes = 0;  // n* = (sd / mean)^2, at least 1; infinity without bias
  double steps = 0;      // horizon n of `drift`
  double drift = 0;      // n mean, and n mean ± 4.9 sd sqrt(n)
  double drift_low = 0;
  double drift_high = 0;
  double decay = 0;    // of an average that takes in one such value a step
  double settles = 0;  // mean / (1 - decay)
};
BiasForecast Forecast(double mean, double sd, double steps = 10000, double decay = 0.9);

// 12,345 reads "12,000": two significant digits with separators; from a million "1.2 million"; from
// 1e15 "1.2e+15". Infinity is "infinity", NaN "unknown".
std::string RoundedCount(double n);

// "after 12,000 steps this bias is larger than the noise": the words for n*. A bias that is larger
// at once says so; without bias: "no bias to extrapolate".
std::string ForecastWords(const BiasForecast& forecast);
// "10,000 steps add up to -2,000 ± 250 ulp; an average of decay 0.9 settles at -2.0 ulp"
std::string DriftWords(const BiasForecast& forecast, const std::string& unit);

// v1::Bias of the stream: unclipped mean, low, high.
v1::Bias ToBias(const BiasStream& stream, const std::string& unit = "ulp");

// Keys: steps_to_exceed_noise, steps, drift, drift_low, drift_high, decay, settles_at, unit, words.
google::protobuf::Struct ToStruct(const BiasForecast& forecast, const std::string& unit = "ulp");

// Fills a finding's bias, forecast, measured ("mean error beyond rounding"), threshold (the
// budget), sample_size, false_alarm (alpha, a probability), level (of the interval) and strength
// (statistical), and adds the assumptions that the test rests on there.
void FillBias(const BiasStream& stream, v1::Finding& finding, const std::string& unit = "ulp");

}  // namespace plumbline::rules
