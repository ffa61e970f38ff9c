// Computes the largest singular values of a matrix by block iteration from random vectors.
#pragma once

#include <cstdint>
#include <vector>

namespace plumbline::audit {

struct SingularValue {
  double value = 0;
  double error = 0;  // the matrix has a singular value within this distance (sums in fp64)
};

inline constexpr int64_t kMostOfSpectrum = int64_t{1} << 24;  // elements
inline constexpr int kSingularValues = 3;

// Returns the largest singular values of a dense finite matrix, `rows` by `columns`, at least two
// of each, in falling order. Returns kSingularValues values, or fewer if the rank is lower. Uses
// eight vectors, four rounds and a fixed seed, so that results are the same on every machine up to
// rounding. With u, v of unit length, D'u = s v by construction and r = |D v - s u|, the symmetric
// matrix [0 D; D' 0] has (u, v) / sqrt 2 as a vector of residual r / sqrt 2, so a singular value
// lies within that of s (Parlett, "The Symmetric Eigenvalue Problem", 4.5). The iteration is from
// Halko, Martinsson and Tropp, 2011.
std::vector<SingularValue> LargestSingularValues(const std::vector<float>& matrix, int64_t rows,
                                                 int64_t columns);

}  // namespace plumbline::audit
