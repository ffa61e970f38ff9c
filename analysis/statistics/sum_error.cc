#include "analysis/statistics/sum_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::analysis {

SumError ErrorOf(double y, const ExactSum& s, double sum_squares, DType out, uint32_t divisor) {
  SumError error;
  const double ideal = s.RoundTo(out, RoundingMode::kNearestEven, divisor);
  const double norm = std::sqrt(sum_squares) / divisor;
  if (!std::isfinite(y) || !std::isfinite(ideal) || !std::isfinite(norm)) return error;
  const int sign = s.Sign();
  const double unit = std::max(s.Ulp(out, divisor), UlpOf(norm, out));
  error.kind = sign == 0 ? SumError::Kind::kZeroSum : SumError::Kind::kJudged;
  error.e = (y - ideal) / unit * (sign == 0 ? 1 : sign);
  error.misrounded = y != ideal;
  return error;
}

double BiasUnitScale(DType out) {
  const int beyond = FormatOf(out).precision - FormatOf(DType::kBF16).precision;
  return FormatOf(out).precision >= 24 ? PowerOfTwo(-beyond) : 1;
}

const char* BiasUnit(DType out) { return FormatOf(out).precision >= 24 ? "bf16 ulp" : "ulp"; }

void SumErrors::Take(const SumError& error) {
  if (error.kind == SumError::Kind::kAside) {
    ++aside;
    return;
  }
  (error.kind == SumError::Kind::kJudged ? judged : zero_sum).push_back(error.e);
  if (error.misrounded) ++misrounded;
}

void LostMass::Take(double before, double x, double after) {
  if (x == 0 || !std::isfinite(before) || !std::isfinite(x) || !std::isfinite(after)) return;
  ++adds;
  mass += std::fabs(x);
  if (before != after) return;
  ++lost;
  lost_mass += std::fabs(x);
}

void LostMass::Add(const LostMass& other) {
  adds += other.adds;
  lost += other.lost;
  mass += other.mass;
  lost_mass += other.lost_mass;
}

double LostMass::lost_share() const {
  return adds > 0 ? static_cast<double>(lost) / static_cast<double>(adds)
                  : std::numeric_limits<double>::quiet_NaN();
}

double LostMass::mass_share() const {
  return mass > 0 ? lost_mass / mass : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace plumbline::analysis
