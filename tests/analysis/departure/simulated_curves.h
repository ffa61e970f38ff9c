// Loss curves of simulated seeds.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "analysis/departure/departure.h"

namespace plumbline::departure::testing {

struct CurvePlan {
  size_t points = 1000;
  double seeds = 0.003;  // Standard deviation of the level per run.
  double noise = 0.01;   // Standard deviation per point.
  double memory = 0;     // Correlation of the noise between adjacent points.
  double wander = 0;     // Standard deviation of a level that varies over a tenth of the run.
  double step = 0;       // ln loss of side b, from `at` on.
  double ramp = 0;       // As above, but as a ramp up to the end.
  size_t at = 500;
};

class CurveMaker {
 public:
  explicit CurveMaker(uint64_t seed) : random_(seed) {}

  std::vector<double> Run(const CurvePlan& plan, bool apart) {
    std::vector<double> curve;
    const double level = plan.seeds * Normal();
    const double slow = std::exp(-10.0 / static_cast<double>(plan.points));
    double wander = plan.wander * Normal(), noise = plan.noise * Normal();
    for (size_t p = 0; p < plan.points; ++p) {
      wander = slow * wander + std::sqrt(1 - slow * slow) * plan.wander * Normal();
      noise =
          plan.memory * noise + std::sqrt(1 - plan.memory * plan.memory) * plan.noise * Normal();
      double ln = 0.7 + 1.5 / std::sqrt(1.0 + 0.02 * static_cast<double>(p));
      if (apart && p >= plan.at) {
        ln += plan.step;
        ln += plan.ramp * static_cast<double>(p - plan.at) /
              static_cast<double>(plan.points - plan.at);
      }
      curve.push_back(ln + level + wander + noise);
    }
    return curve;
  }

  Curves Side(size_t runs, const CurvePlan& plan, bool apart) {
    Curves side;
    for (size_t r = 0; r < runs; ++r) side.push_back(Run(plan, apart));
    return side;
  }

 private:
  double Normal() { return normal_(random_); }
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

}  // namespace plumbline::departure::testing
