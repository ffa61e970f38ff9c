// Least squares with few columns.
#pragma once

#include <optional>
#include <vector>

#include "analysis/completeness/applied_gradient.h"

namespace plumbline::analysis {

struct WeightsFit {
  std::vector<double> weight;  // by column
  std::vector<double> error;   // standard error of each weight, from the residual
  double residual = 0;         // |y - sum of weight * column| / |y|, Euclidean norms
};

// Fits y = sum over k of weight_k * columns[k] (Householder's QR factorisation; Golub and Van Loan,
// Matrix Computations, 5.3.2). All vectors have the length of y. Returns nullopt if there are no
// columns, fewer elements than columns + 2, or columns that depend on each other: a diagonal
// element of R below 1e-6 of its column's norm. Pure; thread-safe.
std::optional<WeightsFit> FitWeights(const std::vector<const GradientValues*>& columns,
                                     const GradientValues& y);

double NormOf(const GradientValues& values);

}  // namespace plumbline::analysis
