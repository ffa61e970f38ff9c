// Typical training curves, healthy and with planted faults. Fixed seeds; identical on every machine
// up to the last bit of ln.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace plumbline::analysis::testing {

// splitmix64; each seed has its own start.
class CurveRandom {
 public:
  explicit CurveRandom(uint64_t seed) : state_(seed) { state_ = Next() ^ (seed << 32); }
  double Uniform();  // Returns a value in (0, 1).
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  double Normal();
  double Student3();
  uint64_t Below(uint64_t n) { return static_cast<uint64_t>(Uniform() * static_cast<double>(n)); }

 private:
  uint64_t Next();
  uint64_t state_;
};

struct CurveSpec {
  size_t points = 2000;
  double begin = 10;   // Loss of the first point.
  double floor = 1.8;  // Limit of the power law.
  double power = 0.4;
  double scale = 20;       // Points until the power law bends.
  double noise = 0.02;     // Standard deviation of ln loss.
  double correlation = 0;  // Correlation of the noise between adjacent points.
  enum class Tail { kNormal, kLaplace, kStudent5 } tail = Tail::kNormal;
  double grow = 0;          // Factor of the growth of noise over the run.
  double rounding = 0;      // Values are multiples of it; 0 if not rounded.
  size_t plateau_from = 0;  // Start of a flat part; 0 if there is none.
  double step_down = 0;     // Fraction by which the loss falls abruptly at step_at.
  size_t step_at = 0;
  double overfit = 0;  // Fraction by which the loss rises over the last half.
  size_t warm_up = 0;  // Points before the loss falls.
  double wave = 0;     // Amplitude (ln) of a slow wave of period `period`.
  double period = 400;
  uint64_t seed = 1;
};
std::vector<double> Curve(const CurveSpec& spec);

// The healthy curve with index `number`. Families rotate; the parameters depend on the index.
struct HealthyCurve {
  std::string family;
  std::vector<double> values;
  std::vector<double> rate;  // Empty if not logged.
  bool evaluation = false;
};
HealthyCurve Healthy(uint64_t number);

}  // namespace plumbline::analysis::testing
