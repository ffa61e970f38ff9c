#include "analysis/series/overfit.h"

#include <algorithm>

#include "analysis/series/robust.h"

namespace plumbline::analysis {
namespace {

constexpr double kLeastRise = 0.1;  // rise as a share of the best evaluation
constexpr double kRiseErrors = 6;   // equal to the limit of health/loss-divergence
constexpr double kAboveBest = 2;    // in sigma, for each of the newest evaluations
// Number of evaluations; fewer are too few for a median estimate of the noise.
constexpr size_t kFew = 12;
constexpr double kFewAdd = 1;

// Returns sigma of one evaluation from second differences, which a slope does not change. If there
// are few, uses their root mean square, increased because few values may underestimate it.
double SigmaOfBends(const std::vector<double>& values) {
  std::vector<double> bends;
  double squares = 0;
  for (size_t i = 2; i < values.size(); ++i) {
    bends.push_back(values[i] - 2 * values[i - 1] + values[i - 2]);
    squares += bends.back() * bends.back();
  }
  const auto count = static_cast<double>(bends.size());
  if (values.size() < kFew) return std::sqrt(squares / count / 6) * (1 + kFewAdd / count);
  return DeviationOf(bends) / std::sqrt(6.0);
}

// Under 12 evaluations the turn at the best one is most of the bends. So the noise is that of the
// evaluations from the best one on, if these are 5 or more and have less. It is increased, because
// the smaller of two estimates is too small.
double SigmaOf(const std::vector<double>& values, size_t best) {
  constexpr size_t kRising = 5;
  constexpr double kOfTwo = 1.25;
  const double sigma = SigmaOfBends(values);
  if (values.size() >= kFew || values.size() - best < kRising) return sigma;
  const std::vector<double> rising(values.begin() + static_cast<std::ptrdiff_t>(best),
                                   values.end());
  return std::min(sigma, kOfTwo * SigmaOfBends(rising));
}

double OverfitMean(const std::vector<double>& values, size_t from, size_t count) {
  double sum = 0;
  for (size_t i = from; i < from + count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

double OverfitMedian(const std::vector<double>& values, size_t from, size_t count) {
  std::vector<double> part;
  for (size_t i = from; i < std::min(from + count, values.size()); ++i) {
    if (!std::isnan(values[i])) part.push_back(values[i]);
  }
  return part.empty() ? NAN : MedianOf(part);
}

// Returns true if the later value is higher in most pairs. If there are many values, compares means
// of neighbours.
bool Rises(const std::vector<double>& values, size_t from) {
  constexpr size_t kMostCompared = 48;
  const size_t each = (values.size() - from + kMostCompared - 1) / kMostCompared;
  std::vector<double> means;
  for (size_t i = from; i + each <= values.size(); i += each)
    means.push_back(OverfitMean(values, i, each));
  int64_t up = 0, pairs = 0;
  for (size_t i = 0; i < means.size(); ++i) {
    for (size_t j = i + 1; j < means.size(); ++j, ++pairs)
      up += means[j] > means[i] ? 1 : means[j] < means[i] ? -1 : 0;
  }
  return pairs > 0 && 2 * up > pairs;  // Kendall's tau above 0.5
}

// Returns true if the values jump to an end at least 1.5 times as high as the best, and stay there:
// at least the newest 5 are above the middle between both, and the 3 before them are below it.
bool JumpsAndStays(const std::vector<double>& values, double lowest, double stands) {
  constexpr size_t kBefore = 3, kAfter = 5;
  const double middle = (lowest + stands) / 2;
  const auto under = [middle](double value) { return value < middle; };
  size_t first = values.size();  // first of the values above
  while (first > 0 && !under(values[first - 1])) --first;
  const auto cut = values.begin() + static_cast<std::ptrdiff_t>(first);
  return stands >= 1.5 * lowest && first >= kBefore && values.size() - first >= kAfter &&
         std::all_of(cut - static_cast<std::ptrdiff_t>(kBefore), cut, under);
}

}  // namespace

void OverfitWatch::Merge(const Kept& more, Kept* into) {
  const double a = into->of, b = more.of;
  into->value = (a * into->value + b * more.value) / (a + b);
  into->training = std::isnan(into->training)  ? more.training
                   : std::isnan(more.training) ? into->training
                                               : (a * into->training + b * more.training) / (a + b);
  into->step = more.step;
  into->of += more.of;
}

void OverfitWatch::Take(int64_t step, double value, double training) {
  if (!std::isfinite(value)) return;
  if (open_.of > 0 && open_.step >= step) open_ = {};
  while (!kept_.empty() && kept_.back().step >= step) {
    count_ -= kept_.back().of;
    kept_.pop_back();
  }
  ++count_;
  const Kept one{step, value, training, 1};
  if (open_.of == 0) {
    open_ = one;
  } else {
    Merge(one, &open_);
  }
  if (open_.of < stride_) return;
  kept_.push_back(open_);
  open_ = {};
  if (kept_.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) {
    kept_[i] = kept_[2 * i];
    Merge(kept_[2 * i + 1], &kept_[i]);
  }
  kept_.resize(kMost / 2);
  stride_ *= 2;
}

OverfitFigures OverfitWatch::Look() const {
  OverfitFigures figures;
  figures.evaluations = count_;
  const size_t count = kept_.size();
  if (count < kFewest) return figures;
  figures.known = true;
  std::vector<double> values, training;
  for (const Kept& one : kept_) {
    values.push_back(one.value);
    training.push_back(one.training);
  }
  const size_t width = std::max<size_t>(1, count / 12), last = std::max<size_t>(2, count / 8);
  size_t best = 0;
  double lowest = OverfitMean(values, 0, width);
  for (size_t i = 1; i + width + last <= count; ++i) {
    const double mean = OverfitMean(values, i, width);
    if (mean < lowest) lowest = mean, best = i;
  }
  size_t deepest = best;  // index of the lowest of these
  for (size_t i = best; i < best + width; ++i) {
    if (values[i] < values[deepest]) deepest = i;
  }
  figures.best = lowest;
  figures.width = width * stride_;
  figures.best_step = kept_[deepest].step;
  figures.step = kept_.back().step;
  figures.sigma = SigmaOf(values, best);
  figures.stands = OverfitMedian(values, count - last, last);
  const double error = 1.25 * figures.sigma *
                       std::sqrt(1 / static_cast<double>(last) + 1 / static_cast<double>(width));
  const double rise = figures.stands - lowest;
  figures.rises = lowest > 0 && rise >= kLeastRise * lowest && rise >= kRiseErrors * error &&
                  (Rises(values, best) || JumpsAndStays(values, lowest, figures.stands)) &&
                  *std::min_element(values.end() - static_cast<std::ptrdiff_t>(last),
                                    values.end()) > lowest + kAboveBest * figures.sigma;
  // If the best evaluation is the first one, compares with the training loss of the one after it.
  const size_t at = best == 0 && std::isnan(training[0]) ? 1 : best;
  figures.training_best = OverfitMedian(training, at, width);
  figures.training_now = OverfitMedian(training, count - last, last);
  figures.training = std::isfinite(figures.training_best) && std::isfinite(figures.training_now);
  figures.falls = !figures.training || figures.training_now < figures.training_best;
  return figures;
}

}  // namespace plumbline::analysis
