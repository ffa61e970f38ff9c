#include "analysis/completeness/weights_fit.h"

#include <cmath>
#include <utility>

namespace plumbline::analysis {
namespace {

constexpr double kDependent = 1e-6;

// The columns scaled to norm 1, in triangular form.
class Triangular {
 public:
  Triangular(const std::vector<const GradientValues*>& columns, const GradientValues& y) : y_(y) {
    for (const GradientValues* column : columns) {
      norms_.push_back(NormOf(*column));
      columns_.push_back(*column);
      for (double& x : columns_.back()) x /= norms_.back();
    }
  }

  // Returns false if the columns depend on each other.
  bool Factor() {
    for (size_t k = 0; k < columns_.size(); ++k) {
      if (!(norms_[k] > 0)) return false;
      GradientValues& column = columns_[k];
      double below = 0;
      for (size_t i = k; i < column.size(); ++i) below += column[i] * column[i];
      const double length = std::sqrt(below);
      if (!(length > kDependent)) return false;
      GradientValues v(column.begin() + static_cast<std::ptrdiff_t>(k), column.end());
      v[0] += v[0] < 0 ? -length : length;
      double square = 0;
      for (const double x : v) square += x * x;
      for (size_t j = k; j < columns_.size(); ++j) Reflect(v, square, k, columns_[j]);
      Reflect(v, square, k, y_);
    }
    return true;
  }

  WeightsFit Solve(double norm) const {
    const size_t size = columns_.size();
    WeightsFit fit;
    double rest = 0;
    for (size_t i = size; i < y_.size(); ++i) rest += y_[i] * y_[i];
    fit.residual = norm > 0 ? std::sqrt(rest) / norm : 0;
    const double variance = rest / static_cast<double>(y_.size() - size);
    fit.weight = Back(y_);
    // The inverse of R has the errors: its row k, times the residual's deviation.
    std::vector<double> squares(size, 0);
    for (size_t j = 0; j < size; ++j) {
      GradientValues unit(size, 0);
      unit[j] = 1;
      const std::vector<double> column = Back(unit);
      for (size_t k = 0; k < size; ++k) squares[k] += column[k] * column[k];
    }
    for (size_t k = 0; k < size; ++k) fit.error.push_back(std::sqrt(variance * squares[k]));
    return fit;
  }

 private:
  static void Reflect(const GradientValues& v, double square, size_t k, GradientValues& x) {
    double dot = 0;
    for (size_t i = 0; i < v.size(); ++i) dot += v[i] * x[k + i];
    for (size_t i = 0; i < v.size(); ++i) x[k + i] -= 2 * dot / square * v[i];
  }

  // Solves R w = y, and undoes the scale of the columns.
  std::vector<double> Back(const GradientValues& y) const {
    std::vector<double> w(columns_.size());
    for (size_t k = columns_.size(); k-- > 0;) {
      double sum = y[k];
      for (size_t j = k + 1; j < columns_.size(); ++j) sum -= columns_[j][k] * w[j];
      w[k] = sum / columns_[k][k];
    }
    for (size_t k = 0; k < w.size(); ++k) w[k] /= norms_[k];
    return w;
  }

  std::vector<GradientValues> columns_;
  std::vector<double> norms_;
  GradientValues y_;
};

}  // namespace

double NormOf(const GradientValues& values) {
  double scale = 0;
  for (const double x : values) scale = std::max(scale, std::fabs(x));
  if (!(scale > 0)) return 0;
  double sum = 0;
  for (const double x : values) sum += (x / scale) * (x / scale);
  return scale * std::sqrt(sum);
}

std::optional<WeightsFit> FitWeights(const std::vector<const GradientValues*>& columns,
                                     const GradientValues& y) {
  if (columns.empty() || y.size() < columns.size() + 2) return std::nullopt;
  Triangular triangular(columns, y);
  if (!triangular.Factor()) return std::nullopt;
  return triangular.Solve(NormOf(y));
}

}  // namespace plumbline::analysis
