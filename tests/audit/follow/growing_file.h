// Files as trainers write them: in pieces.
#pragma once

#include <cstdio>
#include <fstream>
#include <string>

namespace plumbline::audit::testing {

inline void Append(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
}

// A rate that decays to 0 at step 100,000, in seven digits.
inline std::string HealthyRate(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6E", 1e-4 * (1 - 1e-5 * static_cast<double>(step)));
  return text;
}

// One iteration in Megatron-LM's format; with the healthy rate if `rate` is empty.
inline std::string Iteration(int64_t step, const std::string& loss, std::string rate = "") {
  if (rate.empty()) rate = HealthyRate(step);
  return " iteration " + std::to_string(step) +
         "/ 100000 | consumed samples: " + std::to_string(8 * step) + " | learning rate: " + rate +
         " | global batch size: 8 | lm loss: " + loss + " | grad norm: 1.0 |\n";
}

// A loss that decreases slowly, with a little noise.
inline std::string HealthyLoss(int64_t step) {
  return std::to_string(2.0 + 1.0 / (1.0 + 0.01 * static_cast<double>(step)) +
                        0.004 * static_cast<double>((step * 7919) % 13 - 6));
}

inline std::string HealthyIterations(int64_t from, int64_t to) {
  std::string text;
  for (int64_t step = from; step < to; ++step) text += Iteration(step, HealthyLoss(step));
  return text;
}

}  // namespace plumbline::audit::testing
