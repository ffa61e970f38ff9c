#include "analysis/tensor/probability_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr double kRowSumStep = 0x1p-24;
// exp(x - logsumexp) in fp32: both are known to half an ulp, which is 2^-14 each at 1,024 to 2,047.
constexpr double kNearOne = 0x1p-13;
constexpr double kBf16Step = 0x1p-8;

// A compensated sum (Neumaier).
class Sum {
 public:
  void Add(double x) {
    const double t = sum_ + x;
    rest_ += std::abs(sum_) >= std::abs(x) ? (sum_ - t) + x : (x - t) + sum_;
    sum_ = t;
  }
  double value() const { return sum_ + rest_; }

 private:
  double sum_ = 0, rest_ = 0;
};

// Returns true if zeros lie between values that are far above the dtype's underflow.
bool HasGaps(const double* p, int64_t n, DType dtype) {
  int64_t first = -1, last = -1, zeros = 0;
  double least = INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    if (p[i] == 0) continue;
    if (first >= 0) zeros += i - last - 1;
    if (first < 0) first = i;
    last = i;
    least = std::min(least, p[i]);
  }
  const double underflow = UlpOf(0, dtype);
  return zeros > 0 && least > 64 * underflow;
}

// Returns true if the row without its smallest value sums to at most one: a floor may have been
// applied (clamp(min = eps)).
bool IsFloored(const double* p, int64_t n, DType dtype, double sum, double bound) {
  const double floor = *std::min_element(p, p + n);
  const double most = *std::max_element(p, p + n);
  const auto floored = std::count(p, p + n, floor);
  const double others = sum - static_cast<double>(floored) * floor;
  // Values of a wide dtype are not equal by chance.
  const bool wide = dtype == DType::kF32 || dtype == DType::kF64;
  return floor > 0 && (most > 16 * floor || (wide && floored >= 8)) && others <= 1 + bound &&
         others > 0.5;
}

// Returns true if the values are integer multiples of the smallest one, and too many differ for a
// coincidence: an integer format with a scale, each value known to half a step.
bool InSteps(const double* p, int64_t n) {
  constexpr size_t kInformative = 8;
  constexpr double kMostSteps = 65535;
  double least = INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    if (p[i] > 0) least = std::min(least, p[i]);
  }
  std::set<double> multiples;
  for (int64_t i = 0; i < n; ++i) {
    const double steps = p[i] / least;
    // A scale is stored in fp32, the values perhaps in bf16.
    if (steps > kMostSteps || std::abs(steps - std::round(steps)) > kBf16Step * steps) return false;
    if (multiples.size() < kInformative && steps < 64) multiples.insert(std::round(steps));
  }
  return multiples.size() >= kInformative;
}

// Returns how many values `dtype` has from one positive value to another.
double GridPoints(double from, double to, DType dtype) {
  double points = 1;
  for (double x = from; x < to && points < 1e9;) {
    int exponent;
    std::frexp(x, &exponent);
    const double end = std::min(to, std::ldexp(1.0, exponent));
    points += (end - x) / UlpOf(x, dtype);
    x = end;
  }
  return points;
}

// Returns true if there are far fewer different values than values, and than the dtype has in their
// range: 8 bits with a scale. Rows of one level (uniform ones) and repeated rows do not count. fp16
// has few values where it underflows.
bool FewLevels(const TensorCase& c, DType dtype) {
  constexpr size_t kInformative = 2, kMostLevels = 256;
  if (dtype == DType::kF16) return false;
  std::set<double> levels;
  std::set<std::pair<double, double>> seen;  // a row's sum, weighted and unweighted
  size_t values = 0;
  for (int64_t r = 0; r < c.rows; ++r) {
    const double* p = c.values.data() + r * c.columns;
    std::set<double> own;
    double sum = 0, weighted = 0;
    size_t positive = 0;
    for (int64_t i = 0; i < c.columns && own.size() <= kMostLevels; ++i) {
      if (!(p[i] > 0) || !std::isfinite(p[i])) continue;
      ++positive;
      sum += p[i];
      weighted += static_cast<double>(i) * p[i];
      own.insert(p[i]);
    }
    if (own.size() < 2 || !seen.emplace(sum, weighted).second) continue;
    values += positive;
    levels.insert(own.begin(), own.end());
    if (levels.size() > kMostLevels) return false;
  }
  return levels.size() >= kInformative && values >= 2 * levels.size() &&
         4 * static_cast<double>(levels.size()) <
             GridPoints(*levels.begin(), *levels.rbegin(), dtype);
}

RowKind KindOfSum(const double* p, int64_t n, DType dtype, double sum, double bound,
                  bool few_levels) {
  const double off = sum - 1;
  if (std::abs(off) <= bound) return RowKind::kSumsToOne;
  if (std::abs(off) <= bound + kNearOne) return RowKind::kNearOne;
  if (HasGaps(p, n, dtype)) return RowKind::kGaps;
  if (few_levels || InSteps(p, n)) return RowKind::kSteps;
  // m additions in 8 bits err by at most m * 2^-8 of the sum, and additions of zeros do not err. A
  // sum far below one is a part of a row.
  const auto added = static_cast<double>(n - std::count(p, p + n, 0.0));
  if (!(std::abs(off) <= added * kBf16Step + bound) || sum < 0.9) return RowKind::kNotOne;
  return off > 0 ? RowKind::kExcess : RowKind::kDeficit;
}

// Returns the sum of p/largest, added one by one in `format`: a softmax that keeps its sum in that
// format divides by it.
double ReplayedSum(const double* p, int64_t n, double largest, DType format) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (p[i] > 0) sum = RoundToFormat(sum + RoundToFormat(p[i] / largest, format), format);
  }
  return sum;
}

bool IsStopped(const double* p, int64_t n, const ProbabilityRow& row, DType dtype) {
  const double off = row.sum - 1;
  if (!(off > 0.05) || !(off > 4 * row.bound)) return false;
  const double divisor = 1 / row.largest;
  const double tolerance = divisor * (UlpOf(row.largest, dtype) / row.largest + 0x1p-10);
  for (const DType format : {DType::kBF16, DType::kF16}) {
    if (std::abs(ReplayedSum(p, n, row.largest, format) - divisor) <= tolerance) return true;
  }
  return false;
}

ProbabilityRow LookAtRow(const double* p, int64_t n, DType dtype, bool few_levels) {
  ProbabilityRow row;
  Sum sum, ulps;
  bool finite = true, share = true;
  for (int64_t i = 0; i < n; ++i) {
    finite &= std::isfinite(p[i]);
    share &= p[i] >= 0 && p[i] <= 1 + UlpOf(1, dtype);
    if (!finite) continue;
    sum.Add(p[i]);
    ulps.Add(UlpOf(p[i], dtype));
    row.largest = std::max(row.largest, p[i]);
  }
  row.sum = sum.value();
  row.bound = 0.5 * ulps.value() + (static_cast<double>(n) + 2) * kRowSumStep;
  if (!finite) {
    row.kind = RowKind::kNonFinite;
  } else if (!share) {
    row.kind = RowKind::kNoShare;
  } else if (row.largest == 0) {
    row.kind = RowKind::kMasked;
  } else {
    row.kind = KindOfSum(p, n, dtype, row.sum, row.bound, few_levels);
    row.least = *std::min_element(p, p + n);
    row.floored = IsFloored(p, n, dtype, row.sum, row.bound);
    row.positive = n - std::count(p, p + n, 0.0);
    row.stopped = row.kind == RowKind::kExcess && IsStopped(p, n, row, dtype);
  }
  return row;
}

}  // namespace

DType RowsDType(const TensorCase& c) {
  // 8 bits hold few values, so rows of few values may fit them by chance.
  constexpr size_t kEnough = 64;
  for (const DType coarse : {DType::kE5M2, DType::kE4M3}) {
    if (DTypeSize(c.dtype) > 1 && FitsFormat(c.values, coarse, kEnough)) return coarse;
  }
  return CoarsestDType(c.values, c.dtype);
}

std::vector<ProbabilityRow> LookAtRows(const TensorCase& c) {
  const DType dtype = RowsDType(c);
  const bool few_levels = FewLevels(c, dtype);
  std::vector<ProbabilityRow> rows;
  for (int64_t r = 0; r < c.rows; ++r) {
    rows.push_back(LookAtRow(c.values.data() + r * c.columns, c.columns, dtype, few_levels));
    rows.back().index = c.first_row + static_cast<uint64_t>(r);
  }
  return rows;
}

bool OneFloor(const std::vector<ProbabilityRow>& rows) {
  size_t excess = 0;
  double floor = 0;
  for (const ProbabilityRow& row : rows) {
    if (row.kind != RowKind::kExcess && row.kind != RowKind::kNotOne) continue;
    if (!row.floored || (excess > 0 && row.least != floor)) return false;
    floor = row.least;
    ++excess;
  }
  return excess > 0;
}

bool StoppedNormaliser(const std::vector<ProbabilityRow>& rows) {
  bool beyond = false;
  for (const ProbabilityRow& row : rows) {
    if (row.kind == RowKind::kMasked || row.kind == RowKind::kNonFinite ||
        row.kind == RowKind::kSumsToOne || row.kind == RowKind::kNearOne)
      continue;
    if (!row.stopped) return false;
    beyond = true;
  }
  return beyond;
}

bool DropoutFactor(const std::vector<ProbabilityRow>& rows) {
  static constexpr double kRates[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5};
  bool beyond = false;
  double surprise = 0;  // -ln of the probability that nothing was dropped, at the rows' rates
  for (const ProbabilityRow& row : rows) {
    if (row.kind == RowKind::kMasked || row.kind == RowKind::kNonFinite) continue;
    if (std::abs(row.sum - 1) <= row.bound) continue;
    beyond = true;
    const auto rate = std::find_if(std::begin(kRates), std::end(kRates), [&](double q) {
      return std::abs(row.sum * (1 - q) - 1) <= row.bound;
    });
    if (rate == std::end(kRates)) return false;
    surprise -= static_cast<double>(row.positive) * std::log1p(-*rate);
  }
  constexpr double kBeyondBelief = 13.8;  // a probability of 1e-6
  return beyond && surprise <= kBeyondBelief;
}

bool OneFactor(const std::vector<ProbabilityRow>& rows) {
  // The ranges of factors that the rows allow have a common factor. If some row exceeds its bound,
  // the tensor is not a softmax.
  double low = -INFINITY, high = INFINITY, least = INFINITY, most = 0;
  bool beyond = false;
  for (const ProbabilityRow& row : rows) {
    if (row.kind == RowKind::kMasked || row.kind == RowKind::kNonFinite) continue;
    const double bound = row.bound * std::max(1.0, row.sum);
    low = std::max(low, row.sum - bound);
    high = std::min(high, row.sum + bound);
    least = std::min(least, row.largest);
    most = std::max(most, row.largest);
    beyond |= !(std::abs(row.sum - 1) <= row.bound);
  }
  return beyond && low <= high && most > 1.05 * least;
}

}  // namespace plumbline::analysis
