// The values of one series of one rank in its newest steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/archive.h"

namespace plumbline::analysis {

class MeasuredValues {
 public:
  static constexpr size_t kKept = 1024;  // steps

  // Steps ascend; a value of the newest step replaces it.
  void Take(int64_t step, double value);
  // Returns the value of the step, or nothing if it is not kept.
  std::optional<double> At(int64_t step) const;
  // Returns the mean over `count` consecutive steps up to `last`. If one of them is not kept,
  // returns nothing.
  std::optional<double> MeanOf(int64_t last, int64_t count) const;

  void Persist(Archive& a) { a(values_); }

 private:
  std::deque<std::pair<int64_t, double>> values_;  // ascending by step
};

}  // namespace plumbline::analysis
