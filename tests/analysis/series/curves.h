// Curves as training runs draw them, healthy, and faults to plant in them. Fixed seeds; the same on
// every machine up to the last bit of ln.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace plumbline::rules::testing {

// splitmix64; each seed begins at a place of its own.
class CurveRandom {
 public:
  explicit CurveRandom(uint64_t seed) : state_(seed) { state_ = Next() ^ (seed << 32); }
  double Uniform();  // (0, 1)
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
  double begin = 10;   // loss of the first point
  double floor = 1.8;  // that a power law tends to
  double power = 0.4;
  double scale = 20;       // points after which the law begins to bend
  double noise = 0.02;     // of ln loss
  double correlation = 0;  // of the noise from one point to the next
  enum class Tail { kNormal, kLaplace, kStudent5 } tail = Tail::kNormal;
  double grow = 0;          // noise grows by this factor over the run
  double rounding = 0;      // values are multiples of it; 0: not rounded
  size_t plateau_from = 0;  // flat from there on; 0: no
  double step_down = 0;     // the loss falls by this share at once, at step_at
  size_t step_at = 0;
  double overfit = 0;  // the loss rises by this share over the last half
  size_t warm_up = 0;  // points before it falls
  double wave = 0;     // amplitude (ln) of a slow wave, of period `period`
  double period = 400;
  uint64_t seed = 1;
};
std::vector<double> Curve(const CurveSpec& spec);

// The i-th healthy curve of all: families in turn, parameters drawn from its number.
struct HealthyCurve {
  std::string family;
  std::vector<double> values;
  std::vector<double> rate;  // empty: not logged
  bool evaluation = false;
};
HealthyCurve Healthy(uint64_t number);

}  // namespace plumbline::rules::testing
