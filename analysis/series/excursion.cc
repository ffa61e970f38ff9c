#include "analysis/series/excursion.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

double LinearUnit(double level, double scale) {
  return std::max(std::fabs(level), Excursion::kMeans * scale);
}

}  // namespace

const char* NameOf(ExcursionKind kind) {
  switch (kind) {
    case ExcursionKind::kSpike:
      return "spike";
    case ExcursionKind::kRecovered:
      return "recovered";
    case ExcursionKind::kLevelShift:
      return "level-shift";
    case ExcursionKind::kDivergence:
      return "divergence";
  }
  return "spike";
}

double PartOf(double share, double level, double scale, bool linear) {
  return linear ? share * LinearUnit(level, scale) : std::log1p(share);
}

double ShareOf(double part, double level, double scale, bool linear) {
  return linear ? part / LinearUnit(level, scale) : std::expm1(part);
}

double Excursion::value(double y) const { return linear ? y : std::exp(y); }
double Rise::value(double y) const { return linear ? y : std::exp(y); }

}  // namespace plumbline::analysis
