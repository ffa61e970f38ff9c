#include "analysis/departure/departure.h"

#include <algorithm>
#include <cmath>

#include "analysis/statistics/statistics.h"

namespace plumbline::departure {
namespace {

constexpr double kShare = 0.9975;    // quantile of Student's t
constexpr double kMadToSd = 1.4826;  // for a normal distribution
constexpr double kSpread = 3;        // factor on the blocks' own noise
constexpr size_t kInARow = 3, kSmoothed = 5;

double Square(double x) { return x * x; }

double Median(std::vector<double> values) {
  const size_t n = values.size();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (n % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// The points divided into blocks of one size; the last block includes the remainder.
class Blocks {
 public:
  Blocks(size_t points, size_t size) : points_(points), size_(size), count_(points / size) {}
  size_t count() const { return count_; }
  size_t size() const { return size_; }
  size_t begin(size_t j) const { return j * size_; }
  size_t end(size_t j) const { return j + 1 == count_ ? points_ : (j + 1) * size_; }

 private:
  size_t points_, size_, count_;
};

// One side's runs, block by block.
class Side {
 public:
  Side(const Curves& curves, const Blocks& blocks) {
    for (size_t j = 0; j < blocks.count(); ++j) {
      std::vector<double> medians;
      for (const std::vector<double>& run : curves) {
        const auto at = run.begin();
        medians.push_back(Median({at + static_cast<std::ptrdiff_t>(blocks.begin(j)),
                                  at + static_cast<std::ptrdiff_t>(blocks.end(j))}));
      }
      means.push_back(Mean(medians));
      double sum = 0;
      for (const double m : medians) sum += Square(m - means.back());
      squares.push_back(sum);
    }
  }
  std::vector<double> means, squares;  // by block, of the runs' medians
};

// One block size: the differences of the sides, their thresholds, and the first three that exceed
// them.
class Search {
 public:
  Search(const Curves& a, const Curves& b, size_t size) : a_(a), b_(b), blocks_(a[0].size(), size) {
    const Side left(a, blocks_), right(b, blocks_);
    for (size_t j = 0; j < blocks_.count(); ++j) x_.push_back(right.means[j] - left.means[j]);
    Thresholds(left, right);
  }

  // Returns the size of a departure that would just be detected.
  double smallest() const { return Median(threshold_); }

  std::optional<Departure> Find() const {
    for (size_t j = 0; j + kInARow <= x_.size(); ++j) {
      const double sign = x_[j] > 0 ? 1 : -1;
      bool all = true;
      for (size_t k = j; k < j + kInARow; ++k) all &= sign * x_[k] >= threshold_[k];
      if (all) return At(j, sign);
    }
    return std::nullopt;
  }

 private:
  // Sets T of each block from the differences between seeds (assumed, and measured if a side has
  // several) and the blocks' own noise.
  void Thresholds(const Side& left, const Side& right) {
    const double freedom = static_cast<double>(a_.size() + b_.size()) - 2;
    const double runs = 1 / static_cast<double>(a_.size()) + 1 / static_cast<double>(b_.size());
    const double t = StudentQuantile(kShare, kAssumedFreedom + freedom);
    std::vector<double> between;
    for (size_t j = 0; j < x_.size(); ++j)
      between.push_back(freedom > 0 ? (left.squares[j] + right.squares[j]) / freedom : 0);
    const double noise = Noise();
    for (size_t j = 0; j < x_.size(); ++j) {
      const double seeds =
          (kAssumedFreedom * Square(kAssumedSeeds) + freedom * Smoothed(between, j)) /
          (kAssumedFreedom + freedom);
      threshold_.push_back(std::sqrt(Square(t) * seeds * runs + Square(kSpread * noise)));
    }
  }

  // Returns the median over the five blocks around j, as far as they exist.
  static double Smoothed(const std::vector<double>& values, size_t j) {
    const size_t first = j >= kSmoothed / 2 ? j - kSmoothed / 2 : 0;
    const size_t last = std::min(values.size(), j + kSmoothed / 2 + 1);
    return Median({values.begin() + static_cast<std::ptrdiff_t>(first),
                   values.begin() + static_cast<std::ptrdiff_t>(last)});
  }

  // Returns the noise between blocks: of neighbours, and of those four apart in case the noise is
  // slow.
  double Noise() const {
    double most = 0;
    for (const size_t lag : {1, 4}) {
      std::vector<double> steps;
      for (size_t j = 0; j + lag < x_.size(); ++j) steps.push_back(std::fabs(x_[j + lag] - x_[j]));
      most = std::max(most, kMadToSd * Median(steps) / std::sqrt(2.0));
    }
    return most;
  }

  // Describes the departure of the three blocks from j on, starting where the difference rose above
  // half of its threshold.
  Departure At(size_t j, double sign) const {
    Departure out;
    std::vector<double> three;
    for (size_t k = j; k < j + kInARow; ++k) three.push_back(sign * x_[k]);
    const double size = Median(three);
    size_t first = j;
    while (first > 0 && sign * x_[first - 1] >= threshold_[first - 1] / 2) --first;
    const size_t begin = blocks_.begin(first > 0 ? first - 1 : 0);
    const size_t end = blocks_.end(j + kInARow - 1);
    out.onset = Onset(begin, end, sign, size);
    out.size = sign * size;
    out.threshold = threshold_[j];
    out.block = blocks_.size();
    return out;
  }

  // Returns the onset: most points before it are closer to 0, most points after it closer to
  // `size`.
  size_t Onset(size_t begin, size_t end, double sign, double size) const {
    double sum = 0, best = 0;
    size_t onset = begin;
    for (size_t p = begin; p < end; ++p) {
      sum += size / 2 - sign * Difference(p);
      if (sum > best) {
        best = sum;
        onset = p + 1;
      }
    }
    return std::min(onset, end - 1);
  }

  double Difference(size_t p) const {
    double left = 0, right = 0;
    for (const std::vector<double>& run : a_) left += run[p] / static_cast<double>(a_.size());
    for (const std::vector<double>& run : b_) right += run[p] / static_cast<double>(b_.size());
    return right - left;
  }

  const Curves &a_, &b_;
  Blocks blocks_;
  std::vector<double> x_, threshold_;  // by block
};

}  // namespace

Comparison Compare(const Curves& a, const Curves& b) {
  Comparison out;
  out.points = a[0].size();
  out.seeds_known = a.size() + b.size() > 2;
  const size_t n = out.points;
  if (n / kLeastBlock < kLeastBlocks) return out;
  const size_t fine = std::max(kLeastBlock, (n + 63) / 64);
  const size_t coarse = std::max(kLeastBlock, (n + 15) / 16);
  out.block = fine;
  const Search search(a, b, fine);
  out.smallest = search.smallest();
  out.departure = search.Find();
  if (coarse == fine) return out;
  // Larger blocks detect smaller differences.
  const Search wide(a, b, coarse);
  out.smallest = std::min(out.smallest, wide.smallest());
  const std::optional<Departure> other = wide.Find();
  if (other && (!out.departure || other->onset < out.departure->onset)) out.departure = other;
  return out;
}

}  // namespace plumbline::departure
