#include "calculators/ledger/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "calculators/ledger/selection.h"
#include "calculators/ledger/square.h"

namespace plumbline::ledger {
namespace {

// A prior worth four runs: seeds differ by 0.3 %.
constexpr double kAssumedNoise = 0.003;
constexpr int kAssumedFreedom = 4;
// An effect of this size exceeds 2.33 sd nine times in ten.
constexpr double kSeen = 2.33 + 1.28;

// Returns the input of the selection without the multipliers marked in `out`. Sets `*listed` to the
// others.
Measured MeasuredOf(const Ledger& ledger, const Estimate& estimate, const std::vector<bool>& out,
                    std::vector<size_t>* listed) {
  const size_t n = estimate.multipliers.size();
  for (size_t i = 0; i < n; ++i) {
    if (!out[i]) listed->push_back(i);
  }
  Measured measured;
  for (const size_t i : *listed) {
    measured.y.push_back(estimate.multipliers[i].worth.y);
    measured.kept.push_back(ledger.multipliers[i].kept);
    for (const size_t j : *listed) measured.covariance.push_back(estimate.covariance[i * n + j]);
  }
  if (ledger.tried) measured.tried = *ledger.tried - static_cast<int64_t>(n - listed->size());
  return measured;
}

// Sets `*s` to the expected ln multipliers of those that are not left out.
Product ProductOf(const Ledger& ledger, const Allowances& allowances, const Estimate& estimate,
                  const std::vector<bool>& out, std::vector<double>* s) {
  Product product;
  product.shared_bias = std::numeric_limits<double>::quiet_NaN();
  std::vector<size_t> listed;
  const Measured measured = MeasuredOf(ledger, estimate, out, &listed);
  if (listed.empty()) return product;
  const Selected selected = Select(measured);
  *s = selected.s;
  product.ln = selected.sum;
  product.all_variance = selected.variance + Square(selected.sum * estimate.relative_error);
  double decades = 0;
  for (const size_t i : listed) {
    if (!ledger.multipliers[i].kept) continue;
    const MultiplierEstimate& m = estimate.multipliers[i];
    ++product.factors;
    product.seeds_variance +=
        Square(estimate.noise) * SharedSquares(m.worth.coefficients, m.worth.coefficients);
    product.all_variance += Square(allowances.scale * m.decades_to_target);
    decades += m.decades_to_target;
  }
  product.all_variance += Square(allowances.target * decades);
  if (product.factors > 0)
    product.shared_bias = product.ln / (static_cast<double>(product.factors) * estimate.gain);
  return product;
}

// The steps of an estimate, each of which needs the previous one: pairs of runs, their noise, the
// baseline's curve, the scale for gains, the multipliers, their product, the stack.
class Estimator {
 public:
  Estimator(const Ledger& ledger, const Allowances& allowances)
      : ledger_(ledger), allowances_(allowances) {}

  absl::StatusOr<Estimate> Run(std::optional<double> noise) {
    if (ledger_.multipliers.empty()) return absl::InvalidArgumentError("expected a multiplier");
    if (absl::Status status = Cells(); !status.ok()) return status;
    Noise(noise);
    if (absl::Status status = Curve(); !status.ok()) return status;
    LargestScale();
    Multipliers();
    for (MultiplierEstimate& m : out_.multipliers) {
      m.decades_to_target = std::max(0.0, std::log10(ledger_.target / m.worth.largest().flops));
    }
    std::vector<double> s;
    out_.product = ProductOf(ledger_, allowances_, out_,
                             std::vector<bool>(out_.multipliers.size(), false), &s);
    for (size_t i = 0; i < s.size(); ++i) out_.multipliers[i].s = s[i];
    if (ledger_.stack) Stacked(*ledger_.stack);
    return std::move(out_);
  }

 private:
  // Pairs runs with and without by scale and seed, for each multiplier and for the stack.
  absl::Status Cells() {
    for (const Multiplier& m : ledger_.multipliers) {
      MultiplierEstimate& e = out_.multipliers.emplace_back();
      e.cells = CellsOf(ledger_.runs, m.arms);
      if (e.cells.empty())
        return absl::InvalidArgumentError(
            absl::StrCat("multiplier ", m.name, ": expected runs with and without at one scale"));
    }
    if (!ledger_.stack) return absl::OkStatus();
    stack_ = CellsOf(ledger_.runs, ledger_.stack->arms);
    return stack_.empty()
               ? absl::InvalidArgumentError("stack: expected runs with and without at one scale")
               : absl::OkStatus();
  }

  // Estimates the noise of one run's ln loss, pooled over the multipliers' cells without the
  // stack's. Simulations give it.
  void Noise(std::optional<double> given) {
    double squares = kAssumedFreedom * Square(kAssumedNoise);
    for (const MultiplierEstimate& m : out_.multipliers) {
      for (const Cell& cell : m.cells) {
        squares += cell.squares;
        out_.freedom += cell.freedom;
      }
    }
    out_.noise = given.value_or(std::sqrt(squares / (kAssumedFreedom + out_.freedom)));
  }

  // Fits loss against FLOPs. No E may lie above an observed loss.
  absl::Status Curve() {
    if (ScalesOf(ledger_.runs, ledger_.baseline) < 2)
      return absl::InvalidArgumentError("baseline: expected runs of at least 2 scales");
    double lowest = std::numeric_limits<double>::infinity();
    for (const Cell* cell : AllCells())
      lowest = std::min({lowest, std::exp(cell->ln_with), std::exp(cell->ln_without)});
    out_.baseline = FitBaseline(ledger_.runs, ledger_.baseline, Square(out_.noise), lowest);
    if (out_.baseline.curves.empty())
      return absl::InvalidArgumentError(
          "baseline: expected a loss that falls as a power of FLOPs, exponent 0.02 to 0.6");
    return absl::OkStatus();
  }

  std::vector<const Cell*> AllCells() const {
    std::vector<const Cell*> all;
    for (const MultiplierEstimate& m : out_.multipliers) {
      for (const Cell& cell : m.cells) all.push_back(&cell);
    }
    for (const Cell& cell : stack_) all.push_back(&cell);
    return all;
  }

  // Finds the scale of the largest ablations, and the compute that a nat is worth there.
  void LargestScale() {
    for (const MultiplierEstimate& m : out_.multipliers)
      out_.largest_scale = std::max(out_.largest_scale, m.cells.back().flops);
    double sum = 0, count = 0;
    for (const MultiplierEstimate& m : out_.multipliers) {
      if (m.cells.back().flops != out_.largest_scale) continue;
      sum += m.cells.back().ln_without;
      ++count;
    }
    out_.ln_loss = sum / count;
    out_.gain = out_.baseline.Gain(out_.ln_loss);
    out_.relative_error = out_.baseline.RelativeError(out_.ln_loss);
  }

  void Multipliers() {
    std::vector<Worth> worths;
    for (MultiplierEstimate& m : out_.multipliers) {
      m.worth = WorthOf(m.cells, out_.baseline, Square(out_.noise), allowances_);
      worths.push_back(m.worth);
    }
    out_.covariance = CovarianceOf(worths, Square(out_.noise), allowances_);
    for (size_t i = 0; i < worths.size(); ++i)
      out_.multipliers[i].sd = std::sqrt(out_.covariance[i * worths.size() + i]);
  }

  // Estimates all changes together, at the stack's largest scale; and the stack without one of
  // them.
  void Stacked(const Stack& stack) {
    StackEstimate& s = out_.stack.emplace();
    const Cell& cell = stack_.back();
    s.flops = cell.flops;
    s.ln = out_.baseline.Worth(cell);
    s.sd = Sd(cell, s.ln);
    for (const Multiplier& m : ledger_.multipliers) s.claimed += m.kept ? std::log(m.claimed) : 0;
    for (const LeaveOut& l : stack.leave_outs) {
      const std::vector<Cell> cells = CellsOf(ledger_.runs, {stack.arms.with, l.runs});
      if (cells.empty()) continue;
      const double worth = out_.baseline.Worth(cells.back());
      const double sd = Sd(cells.back(), worth);
      s.leave_outs.push_back({l.name, worth, sd, kSeen * Sd(cells.back(), 0)});
    }
  }

  // Returns the error of a cell's ln worth: noise, the error of the curve, and the bias that all
  // cells of the scale may share.
  double Sd(const Cell& cell, double worth) const {
    const double gain = out_.baseline.Gain(cell.ln_without);
    return std::sqrt(Square(gain * out_.noise) * cell.spread() +
                     Square(worth * out_.relative_error) + Square(allowances_.large * gain));
  }

  const Ledger& ledger_;
  const Allowances& allowances_;
  std::vector<Cell> stack_;
  Estimate out_;
};

}  // namespace

absl::StatusOr<Estimate> EstimateLedger(const Ledger& ledger, const Allowances& allowances,
                                        std::optional<double> noise) {
  return Estimator(ledger, allowances).Run(noise);
}

Product ProductWithout(const Ledger& ledger, const Allowances& allowances, const Estimate& estimate,
                       const std::vector<bool>& out) {
  std::vector<double> s;
  return ProductOf(ledger, allowances, estimate, out, &s);
}

}  // namespace plumbline::ledger
