// How far two programs' log-probabilities of the same tokens are apart: moments of
// d = log pi - log mu, unclamped, at any size of d.
//
// With rho = e^d: k1 = -d, k2 = d^2/2, k3 = rho - 1 - d. Sums of rho, rho^2 and k3 are kept as
// logarithms where they leave [e^-300, e^300], so that tokens that are all 20 nats off, or 2,000,
// read as that. Means and spread by Welford. Values that are not finite are counted apart and touch
// nothing else. Everything merges; nothing depends on the order beyond rounding. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "base/archive.h"
#include "base/real.h"

namespace plumbline::rules {

// log sum_i e^(x_i), streamed.
class LogSum {
 public:
  static constexpr double kPlain = 300;

  void Add(double x);
  // e^x in (e^-kPlain, e^kPlain), where the caller has it.
  void AddPlain(double e_to_x) { plain_ += e_to_x; }
  void Merge(const LogSum& other);
  double Log() const;  // -infinity when empty
  void Persist(Archive& a) { a(plain_, top_, scaled_); }

 private:
  void AddScaled(double top, double scaled);

  double plain_ = 0;  // sum of e^x, |x| <= kPlain
  double top_ = -std::numeric_limits<double>::infinity();
  double scaled_ = 0;  // the others': scaled_ * e^top_
};

// Count, mean and sum of squared deviations.
struct DriftCell {
  uint64_t count = 0;
  double mean = 0;
  double m2 = 0;

  void Add(double x) { Add(x, 1 / static_cast<double>(count + 1)); }
  // `inverse`: 1 / (count + 1), for cells that grow together.
  void Add(double x, double inverse) {
    const double delta = x - mean;
    ++count;
    mean += delta * inverse;
    m2 += delta * (x - mean);
  }
  void Merge(const DriftCell& other);
  double variance() const;     // m2 / count; NaN when empty
  double mean_square() const;  // of x itself
  void Persist(Archive& a) { a(count, mean, m2); }
};

// k3(d) = e^d - 1 - d to full relative precision; infinity above d = 709.
double K3(double d);

class DriftMoments {
 public:
  // |d| beyond ln of these: a tenth, a factor of 2, 5, 100.
  static constexpr std::array<double, 4> kTails = {1.1, 2, 5, 100};

  void Add(double d);
  void Merge(const DriftMoments& other);

  uint64_t count() const { return cell_.count; }  // finite ones
  uint64_t non_finite() const { return non_finite_; }
  double mean() const { return count() == 0 ? kNaN : cell_.mean; }
  double variance() const { return cell_.variance(); }
  double mean_abs() const { return count() == 0 ? kNaN : abs_ / static_cast<double>(count()); }
  double k1() const { return -mean(); }
  double k2() const { return cell_.mean_square() / 2; }
  double log_k3() const;  // of the mean; -infinity where all d are 0
  double k3() const;      // infinity where a double cannot hold it
  // Counts of tokens above and below, by kTails.
  const std::array<uint64_t, 4>& above() const { return above_; }
  const std::array<uint64_t, 4>& below() const { return below_; }
  double tail_share(size_t i) const;                       // both sides
  uint64_t above_fourth() const { return above_fourth_; }  // d > ln 1.25
  // Mean of min(d^2, 1/4): what a bounded test can watch.
  double bounded_square() const;

  // Effective sample size over count, 1 / (1 + chi-square), chi-square = mean(rho^2) - 1, where
  // mean(rho) is 1 but for chance: within 4 standard errors of 1, weights are taken by their own
  // mean. Beyond, a record whose tokens are all 20 nats too likely or too unlikely must not read 1.
  // Above, weights count as they are; below, the missing mass lies on tokens that were not drawn:
  // one such token is added, so that it reads 1/n.
  double log_ess_share() const;
  double ess_share() const;
  double log_chi_square_plus_1() const { return -log_ess_share(); }

  void Persist(Archive& a) {
    a(cell_, non_finite_, ratio_, ratio_squared_, k3_large_, k3_, abs_, bounded_, above_, below_);
    a(above_fourth_);
  }

 private:
  DriftCell cell_;
  uint64_t non_finite_ = 0;
  LogSum ratio_;
  LogSum ratio_squared_;
  LogSum k3_large_;  // of log k3, d > 150
  double k3_ = 0;    // the others' sum
  double abs_ = 0;
  double bounded_ = 0;
  std::array<uint64_t, 4> above_{};
  std::array<uint64_t, 4> below_{};
  uint64_t above_fourth_ = 0;
};

}  // namespace plumbline::rules
