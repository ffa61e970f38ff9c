// The comparison of two routings by its definition, in loops: the reference of train_infer/join.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules::testing {

template <typename T>
T At(const v1::Tensor& t, size_t i) {
  T v;
  std::memcpy(&v, t.data().data() + i * sizeof(T), sizeof(T));
  return v;
}

struct Plain {
  uint64_t joined = 0, flips = 0, order_only = 0, large = 0, noisy = 0;
  double overlap = 0;
  double difference = 0;
};

// Rows in message order: sorted scores, margins, choices.
struct PlainRow {
  std::vector<float> x;
  std::vector<int64_t> chosen;
  std::vector<int> order;  // experts by score
  double Margin(size_t k) const {
    return double{x[static_cast<size_t>(order[k - 1])]} - double{x[static_cast<size_t>(order[k])]};
  }
  // Returns true if the scores are within two f32 steps of the larger one.
  bool Tied(size_t k) const {
    double step = 0;
    for (size_t i : {k - 1, k}) {
      const float v = std::fabs(x[static_cast<size_t>(order[i])]);
      step = std::max(step, double{std::nextafter(v, HUGE_VALF)} - double{v});
    }
    return Margin(k) <= 2 * step;
  }
};

PlainRow RowOf(const v1::Routing& r, size_t row);
Plain ByDefinition(const v1::Routing& train, const v1::Routing& infer, double factor);

}  // namespace plumbline::rules::testing
