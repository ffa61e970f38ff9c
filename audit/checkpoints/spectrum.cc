#include "audit/checkpoints/spectrum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/core/sample_index.h"

namespace plumbline::audit {
namespace {

constexpr size_t kVectors = 8;
constexpr int kRounds = 4;

using Row = std::array<double, kVectors>;
using Block = std::vector<Row>;  // one vector per column

double Dot(const Block& block, size_t i, size_t j) {
  double sum = 0;
  for (const Row& row : block) sum += row[i] * row[j];
  return sum;
}

// Orthonormalises by modified Gram-Schmidt, twice. A vector that depends on earlier vectors becomes
// zero.
void Orthonormalise(Block* block) {
  for (size_t j = 0; j < kVectors; ++j) {
    const double before = std::sqrt(Dot(*block, j, j));
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t i = 0; i < j; ++i) {
        const double along = Dot(*block, i, j);
        for (Row& row : *block) row[j] -= along * row[i];
      }
    }
    const double length = std::sqrt(Dot(*block, j, j));
    const double scale = length > 1e-10 * before ? 1 / length : 0;
    for (Row& row : *block) row[j] *= scale;
  }
}

// Multiplies D by a block of `columns` rows.
Block Times(const std::vector<float>& d, int64_t rows, int64_t columns, const Block& x) {
  Block y(static_cast<size_t>(rows));
  for (size_t i = 0; i < y.size(); ++i) {
    const float* row = d.data() + i * static_cast<size_t>(columns);
    Row sum{};
    for (size_t k = 0; k < x.size(); ++k) {
      for (size_t j = 0; j < kVectors; ++j) sum[j] += static_cast<double>(row[k]) * x[k][j];
    }
    y[i] = sum;
  }
  return y;
}

// Multiplies D' by a block of `rows` rows.
Block TransposeTimes(const std::vector<float>& d, int64_t columns, const Block& x) {
  Block y(static_cast<size_t>(columns));
  for (size_t i = 0; i < x.size(); ++i) {
    const float* row = d.data() + i * static_cast<size_t>(columns);
    for (size_t k = 0; k < y.size(); ++k) {
      for (size_t j = 0; j < kVectors; ++j) y[k][j] += static_cast<double>(row[k]) * x[i][j];
    }
  }
  return y;
}

// Diagonalises a small symmetric matrix with Jacobi rotations: eigenvalues on the diagonal,
// eigenvectors as columns.
using Small = std::array<Row, kVectors>;
void Diagonalise(Small* a, Small* vectors) {
  for (size_t i = 0; i < kVectors; ++i) {
    (*vectors)[i] = {};
    (*vectors)[i][i] = 1;
  }
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (size_t p = 0; p < kVectors; ++p) {
      for (size_t q = p + 1; q < kVectors; ++q) {
        const double off = (*a)[p][q];
        if (off == 0) continue;
        const double theta = ((*a)[q][q] - (*a)[p][p]) / (2 * off);
        const double t = (theta >= 0 ? 1 : -1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (size_t k = 0; k < kVectors; ++k) {
          const double x = (*a)[k][p], y = (*a)[k][q];
          (*a)[k][p] = c * x - s * y;
          (*a)[k][q] = s * x + c * y;
        }
        for (size_t k = 0; k < kVectors; ++k) {
          const double x = (*a)[p][k], y = (*a)[q][k];
          (*a)[p][k] = c * x - s * y;
          (*a)[q][k] = s * x + c * y;
          const double v = (*vectors)[k][p], w = (*vectors)[k][q];
          (*vectors)[k][p] = c * v - s * w;
          (*vectors)[k][q] = s * v + c * w;
        }
      }
    }
  }
}

Block Rotate(const Block& block, const Small& by) {
  Block out(block.size());
  for (size_t i = 0; i < block.size(); ++i) {
    for (size_t k = 0; k < kVectors; ++k) {
      for (size_t j = 0; j < kVectors; ++j) out[i][j] += block[i][k] * by[k][j];
    }
  }
  return out;
}

}  // namespace

std::vector<SingularValue> LargestSingularValues(const std::vector<float>& matrix, int64_t rows,
                                                 int64_t columns) {
  Block x(static_cast<size_t>(columns));
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < kVectors; ++j) {
      const uint64_t bits = internal::Mix64((i * kVectors + j + 1) * 0x9e3779b97f4a7c15ull);
      x[i][j] = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
    }
  }
  Block q = Times(matrix, rows, columns, x);
  Orthonormalise(&q);
  for (int round = 0; round < kRounds; ++round) {
    x = TransposeTimes(matrix, columns, q);
    Orthonormalise(&x);
    q = Times(matrix, rows, columns, x);
    Orthonormalise(&q);
  }
  // B' = D'q is the projection on the block; B B' = W s^2 W'.
  const Block b = TransposeTimes(matrix, columns, q);
  Small gram{}, w{};
  for (size_t i = 0; i < kVectors; ++i) {
    for (size_t j = 0; j < kVectors; ++j) gram[i][j] = Dot(b, i, j);
  }
  Diagonalise(&gram, &w);
  const Block u = Rotate(q, w);
  Block v = Rotate(b, w);  // s v
  std::array<double, kVectors> s{};
  for (size_t j = 0; j < kVectors; ++j) {
    s[j] = std::sqrt(Dot(v, j, j));
    for (Row& row : v) row[j] = s[j] > 0 ? row[j] / s[j] : 0;
  }
  const Block dv = Times(matrix, rows, columns, v);
  std::array<size_t, kVectors> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return s[i] > s[j]; });
  std::vector<SingularValue> out;
  const auto most = static_cast<size_t>(std::min<int64_t>({kSingularValues, rows, columns}));
  for (const size_t j : order) {
    if (out.size() == most || !(s[j] > 0)) break;
    double residual = 0;
    for (size_t i = 0; i < dv.size(); ++i) {
      const double off = dv[i][j] - s[j] * u[i][j];
      residual += off * off;
    }
    out.push_back({s[j], std::sqrt(residual / 2)});
  }
  return out;
}

}  // namespace plumbline::audit
