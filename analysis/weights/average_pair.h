// An average and the weight that it averages, at the same sampled elements of one checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/sample/sample.h"
#include "base/dtype.h"

namespace plumbline::analysis {

struct AveragePair {
  DType dtype = DType::kUnspecified;  // of the average
  std::vector<uint64_t> indices;      // of the average
  // `weight` is empty if its sampled elements are others.
  std::vector<double> average, weight;

  // Sites are sorted by name, so the average comes before its weight.
  void Take(bool is_average, const TensorCase& sample) {
    if (is_average) {
      dtype = sample.dtype;
      indices = sample.offsets;
      average = sample.values;
    } else if (sample.offsets == indices) {
      weight = sample.values;
    }
  }
};

}  // namespace plumbline::analysis
