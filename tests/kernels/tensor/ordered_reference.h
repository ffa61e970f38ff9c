// Computes the sums of bf16, f16 and f32 in the order that tensor/sum_order.h documents, without
// its code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "tests/kernels/tensor/exact_reference.h"

namespace plumbline {

// Returns one of the sums of an ordinary tile; `add`: of the four values of a place.
template <typename Real, typename Term>
inline double TileSum(const std::vector<double>& x, size_t size, Term add) {
  const size_t places = 16 / size;
  double threads[128];
  for (size_t t = 0; t < 128; ++t) {
    threads[t] = 0;
    for (size_t round = 0; round < 8; ++round) {
      Real place[8];
      for (size_t k = 0; k < places; ++k) {
        double v[4];
        for (size_t b = 0; b < 4; ++b) v[b] = x[((4 * round + b) * 128 + t) * places + k];
        place[k] = add(v);
      }
      for (size_t n = places / 2; n > 0; n /= 2) {
        for (size_t k = 0; k < n; ++k) place[k] = place[2 * k] + place[2 * k + 1];
      }
      threads[t] += place[0];
    }
  }
  for (size_t n = 64; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) threads[i] = threads[2 * i] + threads[2 * i + 1];
  }
  return threads[0];
}

template <typename Real>
inline void AddTile(const std::vector<double>& x, size_t size, ExactReference* sum,
                    ExactReference* squares, ExactReference* l1) {
  sum->Add(TileSum<Real>(x, size, [](const double* v) {
    return static_cast<Real>((static_cast<Real>(v[0]) + static_cast<Real>(v[1])) +
                             (static_cast<Real>(v[2]) + static_cast<Real>(v[3])));
  }));
  l1->Add(TileSum<Real>(x, size, [](const double* v) {
    return static_cast<Real>(
        (static_cast<Real>(std::abs(v[0])) + static_cast<Real>(std::abs(v[1]))) +
        (static_cast<Real>(std::abs(v[2])) + static_cast<Real>(std::abs(v[3]))));
  }));
  squares->Add(TileSum<Real>(x, size, [](const double* v) {
    Real s = static_cast<Real>(v[0]) * static_cast<Real>(v[0]);
    for (int i = 1; i < 4; ++i) {
      s = std::fma(static_cast<Real>(v[i]), static_cast<Real>(v[i]), s);
    }
    return s;
  }));
}

// Computes the sums of a dtype that has tiles.
inline void ReferenceSums(DType t, const std::vector<double>& values, ExactReference* sum,
                          ExactReference* squares, ExactReference* l1) {
  const size_t size = DTypeSize(t);
  const size_t tile = 65536 / size;
  for (size_t first = 0; first < values.size(); first += tile) {
    std::vector<double> x(
        values.begin() + static_cast<int64_t>(first),
        values.begin() + static_cast<int64_t>(std::min(values.size(), first + tile)));
    double most = 0;
    bool finite = true;
    for (const double v : x) {
      finite = finite && std::isfinite(v);
      most = std::fmax(most, std::abs(v));
    }
    if (!finite || (t == DType::kBF16 && most != 0 && (most >= 0x1p61 || most < 0x1p-50))) {
      for (const double v : x) {
        if (!std::isfinite(v)) continue;
        sum->Add(v);
        squares->AddProduct(v, v);
        l1->Add(std::abs(v));
      }
      continue;
    }
    x.resize(tile);
    t == DType::kF32 ? AddTile<double>(x, size, sum, squares, l1)
                     : AddTile<float>(x, size, sum, squares, l1);
  }
}

}  // namespace plumbline
