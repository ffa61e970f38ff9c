#include "analysis/routing/policies/token_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

// If the variance of log sums between sequences is below this share of that of independent rows,
// the sums may have been stored.
constexpr double kOwnSums = 0.5;

constexpr size_t kFewestAxisRows = 32;
constexpr double kTests = 5;  // log2 of the statistics, tolerances and groups that are tried
constexpr double kLeastDistinct = 0.9;
constexpr double kSoftmaxError = 1e-4;  // error of a softmax in fp32 arithmetic

using AxisRows = std::vector<int32_t>;

struct Grouping {
  const char* name;
  std::vector<AxisRows> groups;
};

bool Readable(const RoutingCase& c, int32_t t) {
  return c.judged(t) && c.rows[static_cast<size_t>(t)] != RowState::kNonFinite;
}

AxisRows RowsOf(const RoutingCase& c) {
  AxisRows rows;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (Readable(c, t)) rows.push_back(t);
  }
  return rows;
}

std::vector<AxisRows> GroupedBy(const AxisRows& rows, const std::vector<int32_t>& of_row,
                                int32_t count) {
  std::vector<AxisRows> groups(static_cast<size_t>(count));
  for (const int32_t t : rows)
    groups[static_cast<size_t>(of_row[static_cast<size_t>(t)])].push_back(t);
  std::erase_if(groups, [](const AxisRows& group) { return group.size() < 2; });
  return groups;
}

std::vector<AxisRows> GroupedBy(const AxisRows& rows, const std::vector<int64_t>& ids) {
  if (ids.empty()) return {};
  const DenseIds dense = NumberIds(ids);
  return GroupedBy(rows, dense.of_row, dense.count);
}

// Returns the rows of the first row's group.
template <typename Id>
AxisRows FirstGroup(const AxisRows& rows, const std::vector<Id>& ids) {
  AxisRows out;
  for (const int32_t t : rows) {
    if (ids[static_cast<size_t>(t)] == ids[static_cast<size_t>(rows[0])]) out.push_back(t);
  }
  return out;
}

// Returns the groups over which a router may normalise, if `wanted` accepts their first group.
template <typename Wanted>
std::vector<Grouping> GroupingsOf(const RoutingCase& c, const AxisRows& rows, Wanted wanted) {
  std::vector<Grouping> out;
  if (rows.empty()) return out;
  if (wanted(rows)) out.push_back({"over the call", {rows}});
  if (c.pools > 1 && wanted(FirstGroup(rows, c.pool)))
    out.push_back({"over each pool", GroupedBy(rows, c.pool, c.pools)});
  if (c.sequence.empty()) return out;
  const AxisRows first = FirstGroup(rows, c.sequence);
  if (first.size() < rows.size() && wanted(first))
    out.push_back({"over each sequence", GroupedBy(rows, c.sequence)});
  return out;
}

bool MostlyDistinct(const RoutingCase& c, const AxisRows& rows) {
  std::unordered_set<uint64_t> seen;
  for (const int32_t t : rows) {
    uint64_t hash = 0;
    for (int32_t e = 0; e < c.experts; ++e) hash = MixScore(hash, c.scores.At(t, e));
    seen.insert(hash);
  }
  return static_cast<double>(seen.size()) >= kLeastDistinct * static_cast<double>(rows.size());
}

// ---- equal sums ------------------------------------------------------------------------------

enum class Statistic { kValue, kSquare, kExponential };
constexpr Statistic kStatistics[] = {Statistic::kValue, Statistic::kSquare,
                                     Statistic::kExponential};
constexpr const char* kStatisticNames[] = {"sum of scores", "sum of squared scores",
                                           "sum of exponentials"};
// Shares of the sum: fp32 arithmetic, and iterations that have not converged.
constexpr double kErrors[] = {1e-6, 1e-4, 1e-3};

double ValueOf(Statistic statistic, double x, double most) {
  if (statistic == Statistic::kSquare) return x * x;
  return statistic == Statistic::kExponential ? std::exp(x - most) : x;
}

// Result of comparing two experts' statistics over a group.
struct Contrast {
  double difference = 0;  // of the sums
  double spread = 0;      // standard deviation of the difference, if rows were independent
  double rounding = 0;    // standard deviation of its rounding error
  double size = 0;        // sum of the magnitudes

  double Tolerance(double error) const { return 6 * rounding + error * size; }
};

double LargestScore(const RoutingCase& c, const AxisRows& rows, int32_t e) {
  double most = -HUGE_VAL;
  for (const int32_t t : rows) most = std::max(most, c.scores.At(t, e));
  return most;
}

// The scores of two experts, by row. One pass over the rows reads them: a row is a cache line or
// more.
struct TwoColumns {
  DType dtype;
  std::vector<double> first, second;
  double most = -HUGE_VAL;
};

// Returns the scores of the first expert and of expert e.
TwoColumns ColumnsOf(const RoutingCase& c, const AxisRows& rows, int32_t e) {
  TwoColumns out{c.scores.dtype(), {}, {}};
  out.first.reserve(rows.size());
  out.second.reserve(rows.size());
  for (const int32_t t : rows) {
    const double x = c.scores.At(t, 0), y = c.scores.At(t, e);
    out.first.push_back(x);
    out.second.push_back(y);
    out.most = std::max(out.most, std::max(x, y));
  }
  return out;
}

Contrast Compare(const TwoColumns& columns, Statistic statistic) {
  Contrast out;
  double mean = 0, squares = 0, count = 0, rounding = 0;
  const auto value_of = [&](double x) {
    const double value = ValueOf(statistic, x, columns.most);
    const double slope = statistic == Statistic::kValue    ? 1
                         : statistic == Statistic::kSquare ? 2 * std::fabs(x)
                                                           : value;
    const double ulp = slope * UlpOf(x, columns.dtype);
    rounding += ulp * ulp / 12;
    out.size += std::fabs(value) / 2;
    return value;
  };
  for (size_t i = 0; i < columns.first.size(); ++i) {
    const double first = value_of(columns.first[i]);
    const double d = value_of(columns.second[i]) - first;
    out.difference += d;
    const double step = d - mean;
    mean += step / ++count;
    squares += step * (d - mean);
  }
  out.spread = std::sqrt(squares);
  out.rounding = std::sqrt(rounding);
  return out;
}

// A quick test that almost all unequal ones fail.
bool MayBeEqual(const RoutingCase& c, const AxisRows& rows) {
  const TwoColumns columns = ColumnsOf(c, rows, 1);
  return std::any_of(std::begin(kStatistics), std::end(kStatistics), [&](Statistic statistic) {
    const Contrast contrast = Compare(columns, statistic);
    return std::fabs(contrast.difference) <= contrast.Tolerance(kErrors[std::size(kErrors) - 1]);
  });
}

// Returns the bits of the equality of all experts in all groups for the error that gives most. If
// they are not equal, returns 0. Cheap for unequal ones.
double EqualBits(const RoutingCase& c, const std::vector<AxisRows>& groups, Statistic statistic) {
  double bits[std::size(kErrors)] = {};
  size_t seen = 0;
  for (const AxisRows& rows : groups) {
    for (int32_t e = 1; e < c.experts; ++e) {
      const Contrast contrast = Compare(ColumnsOf(c, rows, e), statistic);
      bool equal = false;
      for (size_t i = 0; i < std::size(kErrors); ++i) {
        const double tolerance = contrast.Tolerance(kErrors[i]);
        const bool here = std::fabs(contrast.difference) <= tolerance && contrast.spread > 0;
        bits[i] = here ? bits[i] + std::log2(contrast.spread * std::sqrt(2 * std::numbers::pi) /
                                             (2 * tolerance))
                       : -HUGE_VAL;
        equal = equal || bits[i] > -HUGE_VAL;
      }
      if (!equal) return 0;
    }
    seen += rows.size();
  }
  if (seen < kFewestAxisRows) return 0;
  return *std::max_element(std::begin(bits), std::end(bits)) - kTests;
}

// ---- softmax over the tokens -----------------------------------------------------------------

struct Chosen {
  int32_t token;
  std::vector<int32_t> experts;
};

std::vector<Chosen> ChosenRows(const RoutingCase& c) {
  std::vector<Chosen> out;
  for (int32_t t = 0; t < c.tokens; ++t) {
    const RowState state = c.rows[static_cast<size_t>(t)];
    if (state != RowState::kExplained && state != RowState::kUnexplained) continue;
    Chosen row{t, {}};
    for (const Choice& choice : c.ChoicesOf(t)) row.experts.push_back(choice.expert);
    if (!row.experts.empty()) out.push_back(std::move(row));
  }
  return out;
}

// Log sums of the exponentials of every expert over rows; `rows` may repeat.
std::vector<double> LogSums(const RoutingCase& c, const AxisRows& rows) {
  std::vector<double> out;
  for (int32_t e = 0; e < c.experts; ++e) {
    const double most = LargestScore(c, rows, e);
    double sum = 0;
    for (const int32_t t : rows) sum += std::exp(c.scores.At(t, e) - most);
    out.push_back(most + std::log(sum));
  }
  return out;
}

// Returns true if sequences have closer log sums than independent rows would have (permutations of
// one list of tokens), or if there are fewer than four: then sums may have been stored.
bool SequencesAlike(const RoutingCase& c, const AxisRows& rows) {
  const std::vector<AxisRows> groups = GroupedBy(rows, c.sequence);
  if (groups.size() < 4) return true;
  double between = 0, within = 0;
  for (int32_t e = 0; e < c.experts; ++e) {
    const double most = LargestScore(c, rows, e);
    double mean = 0, squares = 0, count = 0;
    for (const AxisRows& group : groups) {
      const auto n = static_cast<double>(group.size());
      double sum = 0, sum_of_squares = 0;
      for (const int32_t t : group) {
        const double x = std::exp(c.scores.At(t, e) - most);
        sum += x;
        sum_of_squares += x * x;
      }
      // The variance of the log of a mean, to first order.
      within += (sum_of_squares / (sum * sum) - 1 / n) / static_cast<double>(groups.size());
      const double value = std::log(sum / n);
      const double step = value - mean;
      mean += step / ++count;
      squares += step * (value - mean);
    }
    between += squares / (count - 1);
  }
  return !(between > kOwnSums * within);
}

// Returns the bits with which prices explain a row's choice; negative infinity if they do not.
double RowBits(const RoutingCase& c, const Chosen& row, const std::vector<double>& price) {
  const auto value = [&](int32_t e) {
    return c.scores.At(row.token, e) - price[static_cast<size_t>(e)];
  };
  double least = HUGE_VAL, ulp = 0;
  for (const int32_t e : row.experts) least = std::min(least, value(e));
  for (int32_t e = 0; e < c.experts; ++e)
    ulp = std::max(ulp, UlpOf(c.scores.At(row.token, e), c.scores.dtype()));
  const double tolerance = kSoftmaxError + 2 * ulp;
  double able = 0, above = 0;
  for (int32_t e = 0; e < c.experts; ++e) {
    able += value(e) >= least - tolerance;
    above += value(e) > least + tolerance;
  }
  const auto k = static_cast<double>(row.experts.size());
  if (above > k - 1) return -HUGE_VAL;
  return Log2Choose(static_cast<double>(c.experts), k) - Log2Choose(able, k);
}

class SoftmaxTrial {
 public:
  SoftmaxTrial(const RoutingCase& c, const std::vector<AxisRows>& groups)
      : c_(c), groups_(groups), group_of_(static_cast<size_t>(c.tokens), -1) {
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const int32_t t : groups[g]) group_of_[static_cast<size_t>(t)] = static_cast<int32_t>(g);
    }
  }

  // Returns the bits with which the groups' own softmax gives every choice; 0 if it does not.
  double Bits(const std::vector<Chosen>& rows) {
    std::vector<std::vector<double>> price;
    for (const AxisRows& group : groups_) price.push_back(LogSums(c_, group));
    const double bits = Explained(rows, price);
    if (!(bits > 0)) return 0;
    for (int resample = 0; resample < 32; ++resample) {
      price.clear();
      for (const AxisRows& group : groups_) price.push_back(LogSums(c_, Resampled(group)));
      if (Explained(rows, price) > -HUGE_VAL) return 0;
    }
    return bits;
  }

 private:
  double Explained(const std::vector<Chosen>& rows,
                   const std::vector<std::vector<double>>& price) const {
    const auto experts = static_cast<double>(c_.experts);
    double bits = -experts * std::log2(static_cast<double>(rows.size()) + 1);
    for (const Chosen& row : rows) {
      const int32_t group = group_of_[static_cast<size_t>(row.token)];
      if (group < 0) continue;
      const double here = RowBits(c_, row, price[static_cast<size_t>(group)]);
      if (here == -HUGE_VAL) return here;
      bits += here;
    }
    return bits;
  }

  AxisRows Resampled(const AxisRows& group) {
    AxisRows out;
    for (size_t i = 0; i < group.size(); ++i) {
      state_ = (state_ + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
      out.push_back(group[(state_ >> 33) % group.size()]);
    }
    return out;
  }

  const RoutingCase& c_;
  const std::vector<AxisRows>& groups_;
  std::vector<int32_t> group_of_;
  uint64_t state_ = 0x706c756d62;  // an own generator: verdicts are the same on every host
};

}  // namespace

std::string TokenAxis::Describe() const {
  return absl::StrFormat(
      "%s (%.1f bits). Then the scores of a token depend on the tokens that follow it. Statistics "
      "stored for exactly these rows would give the same.",
      text, bits);
}

TokenAxis FindTokenAxis(const RoutingCase& c) {
  TokenAxis out;
  if (c.experts < 2 || c.judged_rows < static_cast<int64_t>(kFewestAxisRows)) return out;
  const AxisRows rows = RowsOf(c);
  for (const Grouping& grouping :
       GroupingsOf(c, rows, [&](const AxisRows& first) { return MayBeEqual(c, first); })) {
    for (const Statistic statistic : kStatistics) {
      const double bits = EqualBits(c, grouping.groups, statistic);
      if (!(bits > out.bits)) continue;
      out.bits = bits;
      out.text = absl::StrCat("The ", kStatisticNames[static_cast<int>(statistic)], " ",
                              grouping.name, " is the same for every expert");
      out.by_position = EqualBits(c, GroupedBy(rows, c.position), statistic) > 0;
    }
  }
  if (out.bits > 0) out.repeated = !MostlyDistinct(c, rows) || RowsNearlyRepeat(c, rows);
  return out;
}

TokenAxis ReplayTokenSoftmax(const RoutingCase& c) {
  TokenAxis out;
  if (c.experts < 2 || !c.scores.present()) return out;
  const std::vector<Chosen> chosen = ChosenRows(c);
  if (chosen.size() < kFewestAxisRows) return out;
  const AxisRows rows = RowsOf(c);
  for (const Grouping& grouping : GroupingsOf(c, rows, [](const AxisRows&) { return true; })) {
    const double bits = SoftmaxTrial(c, grouping.groups).Bits(chosen) - kTests;
    if (!(bits > out.bits)) continue;
    out.bits = bits;
    out.text = absl::StrCat(
        "Tokens did not choose by their own scores. A softmax of every expert's "
        "scores ",
        grouping.name,
        " gives every choice; over 32 resamples of the rows it "
        "does not");
  }
  if (out.bits > 0)
    out.repeated = !MostlyDistinct(c, rows) || RowsNearlyRepeat(c, rows) || SequencesAlike(c, rows);
  return out;
}

}  // namespace plumbline::analysis
