// Measures how far two programs' log-probabilities of the same tokens are apart: moments of d = log
// pi - log mu, unclamped, for any size of d.
//
// With rho = e^d: k1 = -d, k2 = d^2/2, k3 = rho - 1 - d. Sums of rho, rho^2 and k3 are kept as
// logarithms if they leave [e^-300, e^300], so that tokens that are all off by 20 nats, or by
// 2,000, give the right result. Means and spread use Welford's method. Non-finite values are
// counted separately and affect nothing else. All members can be merged. The order affects only
// rounding. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "base/archive.h"
#include "base/real.h"

namespace plumbline::analysis {

// Computes log sum_i e^(x_i) in one pass.
class LogSum {
 public:
  static constexpr double kPlain = 300;

  void Add(double x);
  // Adds e^x, if the caller has computed it. It must be in (e^-kPlain, e^kPlain).
  void AddPlain(double e_to_x) { plain_ += e_to_x; }
  void Merge(const LogSum& other);
  double Log() const;  // -infinity if empty
  void Persist(Archive& a) { a(plain_, top_, scaled_); }

 private:
  void AddScaled(double top, double scaled);

  double plain_ = 0;  // sum of e^x, |x| <= kPlain
  double top_ = -std::numeric_limits<double>::infinity();
  double scaled_ = 0;  // the sum over other x is scaled_ * e^top_
};

// Count, mean and sum of squared deviations.
struct DriftCell {
  uint64_t count = 0;
  double mean = 0;
  double m2 = 0;

  void Add(double x) { Add(x, 1 / static_cast<double>(count + 1)); }
  // `inverse` is 1 / (count + 1), shared by cells that grow together.
  void Add(double x, double inverse) {
    const double delta = x - mean;
    ++count;
    mean += delta * inverse;
    m2 += delta * (x - mean);
  }
  void Merge(const DriftCell& other);
  double variance() const;     // m2 / count; NaN if empty
  double mean_square() const;  // mean of x^2
  void Persist(Archive& a) { a(count, mean, m2); }
};

// Returns k3(d) = e^d - 1 - d to full relative precision. If d > 709, returns infinity.
double K3(double d);

class DriftMoments {
 public:
  // Limits of |d|, as factors of the probability.
  static constexpr std::array<double, 4> kTails = {1.1, 2, 5, 100};

  void Add(double d);
  void Merge(const DriftMoments& other);

  uint64_t count() const { return cell_.count; }  // number of finite values
  uint64_t non_finite() const { return non_finite_; }
  double mean() const { return count() == 0 ? kNaN : cell_.mean; }
  double variance() const { return cell_.variance(); }
  double mean_abs() const { return count() == 0 ? kNaN : abs_ / static_cast<double>(count()); }
  double k1() const { return -mean(); }
  double k2() const { return cell_.mean_square() / 2; }
  double log_k3() const;  // log of the mean; -infinity if all d are 0
  double k3() const;      // infinity if a double cannot hold it
  // Counts of tokens above and below each of kTails.
  const std::array<uint64_t, 4>& above() const { return above_; }
  const std::array<uint64_t, 4>& below() const { return below_; }
  // Returns the share above and below kTails[i].
  double tail_share(size_t i) const;
  uint64_t above_fourth() const { return above_fourth_; }  // d > ln 1.25
  // Mean of min(d^2, 1/4), which a bounded test can watch.
  double bounded_square() const;

  // Returns the log of (effective sample size / count): 1 / (1 + chi-square), chi-square =
  // mean(rho^2) - 1. mean(rho) is 1, except for chance. If it is within 4 standard errors of 1,
  // divides the weights by their mean. If it is further away, does not, because a record whose
  // tokens are all 20 nats too likely or too unlikely must not give 1. If it is above 1, uses the
  // weights unchanged. If it is below 1, the missing mass is on tokens that were not drawn: adds
  // one such token, so that the result is 1/n.
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
  LogSum k3_large_;  // sum of k3 for d > 150, as a logarithm
  double k3_ = 0;    // sum of k3 for other d
  double abs_ = 0;
  double bounded_ = 0;
  std::array<uint64_t, 4> above_{};
  std::array<uint64_t, 4> below_{};
  uint64_t above_fourth_ = 0;
};

}  // namespace plumbline::analysis
