#include "analysis/collective/compression_drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

double SumOf(const ReductionCase& c, int32_t column) {
  double sum = 0;
  for (int r = 0; r < c.ranks; ++r) sum += c.input(r, column);
  return c.average() ? sum / c.ranks : sum;
}

}  // namespace

// Finds the columns of this call that have the elements of the first call, in the order of the
// first call.
bool CompressionDrift::Places(const ReductionCase& c, std::vector<int32_t>* columns) {
  std::vector<int32_t> order(c.offsets.size());
  std::iota(order.begin(), order.end(), 0);
  const auto offset = [&](int32_t i) { return c.offsets[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return offset(a) < offset(b); });
  if (offsets_.empty()) {
    for (const int32_t i : order) {
      if (offsets_.size() == kMostElements) break;
      if (offsets_.empty() || offset(i) > offsets_.back()) offsets_.push_back(offset(i));
    }
  }
  size_t at = 0;
  for (const uint64_t wanted : offsets_) {
    while (at < order.size() && offset(order[at]) < wanted) ++at;
    if (at == order.size() || offset(order[at]) != wanted) return false;
    columns->push_back(order[at]);
  }
  return true;
}

void CompressionDrift::Take(const ReductionCase& c, int64_t step) {
  if (last_step_ && step <= *last_step_) return;
  std::vector<int32_t> columns;
  if (!Places(c, &columns)) {
    ++others_;
    return;
  }
  std::vector<double> sums;
  for (const int32_t column : columns) {
    sums.push_back(SumOf(c, column));
    const double y = c.output[static_cast<size_t>(column)];
    // Ignores larger values, because their squares would make the sums infinite for the rest of the
    // run.
    if (!(std::fabs(sums.back()) < 0x1p400) || !(std::fabs(y) < 0x1p400)) return;
  }
  last_step_ = step;
  ++steps_;
  if (windows_.empty() || windows_.back().steps == length_) {
    if (windows_.size() == 4) Merge();
    windows_.push_back({0, std::vector<double>(sums.size()), std::vector<double>(sums.size())});
  }
  Window& window = windows_.back();
  ++window.steps;
  std::vector<double> results;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double y = c.output[static_cast<size_t>(columns[i])];
    window.sum[i] += sums[i];
    window.residual[i] += y - sums[i];
    energy_ += sums[i] * sums[i];
    filled_ += y != 0;
    results.push_back(y);
    if (before_sum_.empty()) continue;
    const double fresh = before_sum_[i] - sums[i];
    along_ += before_result_[i] * fresh;
    squares_ += before_sum_[i] * fresh;
  }
  before_sum_ = sums;
  before_result_ = std::move(results);
  values_ += sums.size();
  if (windows_.size() == 4 && windows_.back().steps == length_) measured_ = Measure();
}

void CompressionDrift::Merge() {
  for (const size_t to : {0u, 1u}) {
    const Window second = windows_[2 * to + 1];
    if (to == 1) windows_[1] = windows_[2];
    Window& first = windows_[to];
    first.steps += second.steps;
    for (size_t i = 0; i < second.sum.size(); ++i) {
      first.sum[i] += second.sum[i];
      first.residual[i] += second.residual[i];
    }
  }
  windows_.resize(2);
  length_ *= 2;
}

// Returns four times the number of steps after which a value has arrived, if each step passes on
// this share of it.
uint64_t CompressionDrift::needed() const {
  const double filled =
      values_ > 0 ? static_cast<double>(filled_) / static_cast<double>(values_) : 1;
  // If there is no noise, the share that a step passes on is unknown.
  const double along = squares_ > 1e-3 * energy_ ? along_ / squares_ : 0;
  const double arrives = std::clamp(std::min(filled, along), 1e-4, 1.0);
  return std::max<uint64_t>(8, static_cast<uint64_t>(std::ceil(4 / arrives)));
}

CompressionDrift::Fit CompressionDrift::FitOf(size_t window) const {
  const Window& w = windows_[window];
  double products = 0, spread = 0, residuals = 0;
  std::vector<double> others(w.sum.size());
  for (size_t i = 0; i < w.sum.size(); ++i) {
    for (size_t v = 0; v < windows_.size(); ++v) others[i] += v == window ? 0 : windows_[v].sum[i];
    const double product = w.sum[i] * others[i];
    products += product;
    spread += product * product;
    residuals += w.residual[i] * others[i];
  }
  Fit fit;
  fit.persists = products > kBiasDeviations * std::sqrt(spread);
  if (!fit.persists) return fit;
  fit.share = residuals / products;
  double squares = 0;
  for (size_t i = 0; i < w.sum.size(); ++i) {
    const double e = (w.residual[i] - fit.share * w.sum[i]) * others[i];
    squares += e * e;
  }
  fit.error = std::sqrt(squares) / products;
  return fit;
}

std::optional<CompressionDrift::Share> CompressionDrift::Measure() const {
  if (length_ < needed()) return std::nullopt;
  Share out;
  out.steps = 4 * length_;
  std::vector<double> low, high;
  for (size_t w = 1; w < windows_.size(); ++w) {
    const Fit fit = FitOf(w);
    if (!fit.persists) return std::nullopt;
    out.mean += fit.share / static_cast<double>(windows_.size() - 1);
    low.push_back(fit.share - kBiasDeviations * fit.error);
    high.push_back(fit.share + kBiasDeviations * fit.error);
  }
  const double least = *std::min_element(low.begin(), low.end());
  const double most = *std::max_element(high.begin(), high.end());
  if (most < 0) out.nearest = most;
  if (least > 0) out.nearest = least;
  out.farthest = -least > most ? least : most;
  return out;
}

std::string CompressionDrift::why() const {
  if (steps_ < 2 && others_ > 0)
    return "elements-change: each step recorded different elements; record the same ones in every "
           "step (whole buffers of at most 1,024 elements, or dumps with equal offsets)";
  const uint64_t wanted = 4 * std::max(needed(), kFirstLength);
  if (steps_ < wanted)
    return absl::StrFormat(
        "few-steps: %d steps; the rule distinguishes late values from lost ones after about %d "
        "steps",
        steps_, wanted);
  return "no-persistent-part: the gradients of the steps have no common part that could be lost";
}

}  // namespace plumbline::analysis
