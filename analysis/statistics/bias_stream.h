// Is there a bias? A test that may be looked at after every step, for ever, and keeps its
// false-alarm probability below alpha; and the interval that says how large the bias is.
//
// Wealth is the mean, over scales S in {1, 4, 16, 64} ulp, bets lambda in {.05, .1, .2, .4, .7} and
// both signs, of prod(1 + lambda (±x_i - b_i) / (1 + max(b_i, 0))), x_i = clip(e_i / S, ±1). The
// budget is b = .05 / S. The stream alarms once, and for good, when wealth reaches 1 / alpha
// (Ville's inequality; Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
// betting", 2023).
//
// What the level rests on. Each factor has expectation at most 1 given all that came before, as
// long as the conditional mean of ±x_i is at most b_i. Two readings give that, and both must be
// silent: (a) Nothing is assumed of the data. The M elements of a step are what they are, their
// clipped mean
//     is within the budget, and the only chance is in which of them were drawn, in which order.
//     Given the draws so far the mean of the rest is at most (M b - sum of the drawn x) / (M - i +
//     1). Elements may share data, and steps may depend on each other in any way.
// (b) The elements are noise that no budget of a single step bounds: each has conditional mean
//     within the budget given the earlier ones. In a tensor of few elements, all of them drawn, the
//     mean of one step then strays beyond .05 ulp by chance, and (a) alone would call that a bias.
// So b_i is the larger of b and (a)'s, which is the smaller bet: valid under each reading alone.
// Where a bias is real the two differ only while chance runs against it.
//
// What the owner must see to:
// - Draws are fresh: element indices come from a hash of (run, step, site), so a step taken twice
//   (a restart that repeats it, one evidence delivered twice) must be given once. A batch that is
//   replayed in other steps draws other elements and is harmless under (a); it says nothing new, so
//   that the interval, which takes samples for independent, is too narrow by the root of the
//   repeats.
// - Elements of one step that share one error (a tensor filled with one value) are one observation
//   under (b). The interval is therefore never narrower than the one that the steps' sums give
//   (sandwich over steps), from the second step on. After one step only (a) speaks: the finding is
//   about that step's elements, and `steps()` says so.
// - Samples that share their addends share their error. n samples in groups of n_g count as n_eff =
//   n^2 / sum n_g^2 (Kish's effective size, for errors that are equal within a group): the interval
//   widens by the root of n / n_eff, and no finding is made of fewer than FewestSamples(alpha) of
//   them. A tensor filled with one value is one rounding, drawn as often as one likes.
// Not thread-safe. NaN, infinite errors and those beyond 2^400 ulp are refused (counted), never
// taken.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "analysis/statistics/sum_error.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// The bias that is nobody's concern, and the half-width of an interval in standard errors
// (two-sided 1e-6 of a normal law).
inline constexpr double kBiasBudgetUlp = 0.05;
inline constexpr double kBiasDeviations = 4.9;

// The fewest samples in which a bias of a whole ulp and more in each of them raises the alarm:
// every factor is at most 1 + .7 (1 - b) / (1 + b), and one bet of forty must bring the whole
// wealth.
double FewestSamples(double alpha);

enum class BiasSide { kNone = 0, kTooSmall = -1, kTooLarge = 1 };

class BiasStream {
 public:
  // alpha in [0, 1): this stream's share of the run's (alpha_shares.h). Of 0: it never alarms.
  explicit BiasStream(double alpha);

  // The errors of one step, in the order in which they were drawn. `population`: the elements they
  // were drawn from without replacement, judged or not; nullopt where it is not known (an
  // assumption to list: reading (b) alone then holds). `left_out`: samples drawn beside these and
  // not judged (zero sums, set aside); the population is taken to hold them in the same share.
  void Add(std::span<const double> errors, std::optional<uint64_t> population,
           uint64_t left_out = 0);
  // The same of a step's samples; their zero sums enter rms and misround rate.
  void Add(const SumErrors& errors, std::optional<uint64_t> population);

  // Wealth reached 1 / alpha at some time. Sticky.
  bool alarmed() const { return alarm_sample_ != 0; }
  // The number of the sample, from 1, and of the Add, from 1, at which it did; 0: never.
  uint64_t alarm_sample() const { return alarm_sample_; }
  uint64_t alarm_step() const { return alarm_step_; }
  // One side's share of the wealth reached 1 / alpha. Sticky, either or both.
  bool alarmed(BiasSide side) const;

  double log_wealth() const;               // now; an e-value at any time fixed by the data so far
  double log_wealth(BiasSide side) const;  // of one side's bets alone, an e-value as well
  double alpha() const { return alpha_; }

  uint64_t count() const { return count_; }  // judged errors
  uint64_t steps() const { return steps_; }  // Adds that brought any
  uint64_t refused() const { return refused_; }
  bool population_unknown() const { return population_unknown_; }  // in some Add
  // Of the unclipped errors, in ulp. NaN without samples; sd, low and high NaN with fewer than two.
  double mean() const;
  double sd() const;
  double low() const { return mean() - half_width(); }
  double high() const { return mean() + half_width(); }
  // 4.9 standard errors: the larger of sd / sqrt(n) and that of the steps' sums.
  double half_width() const;
  double rms() const;              // zero sums included
  double misround_rate() const;    // of Add(SumErrors); NaN without
  double effective_count() const;  // n_eff; count() where no two samples are known to be alike

  // The side on which the whole interval lies beyond the budget; kNone: it reaches into it.
  BiasSide interval_side() const;
  // LEVEL_ERROR where the interval's nearer end is 1 ulp or more, LEVEL_WARNING where beyond the
  // budget, else LEVEL_UNSPECIFIED.
  v1::Level interval_level() const;
  // The finding's: the interval's, where that side alarmed.
  BiasSide side() const;
  v1::Level level() const;

  void Persist(Archive& a) {
    a.Version(1);
    a(alpha_, threshold_, products_, alarm_sample_, alarm_step_, side_alarmed_, count_, steps_);
    a(refused_, population_unknown_, mean_, squares_, origin_, step_ss_, step_sn_, step_nn_);
    a(alike_, zero_squares_, zero_sums_, rounded_, misrounded_);
  }

 private:
  static constexpr std::array<double, 4> kScales = {1, 4, 16, 64};
  static constexpr std::array<double, 5> kBets = {.05, .1, .2, .4, .7};
  static constexpr int kProducts = 2 * 4 * 5;

  // m * 2^exponent, so that no product overflows or is lost below the least double.
  struct Scaled {
    double m = 1;
    int64_t exponent = 0;
    void Persist(Archive& a) { a(m, exponent); }
  };
  // The sum of what was drawn in this step, by (sign, scale).
  using Drawn = std::array<double, 8>;

  void Bet(double e, Drawn& drawn, double left, double population);
  void Look();
  void MeasureStep(std::span<const double> errors);
  double LogMean(size_t first, size_t last) const;

  double alpha_;
  double threshold_;                          // wealth's, times kProducts
  std::array<Scaled, kProducts> products_{};  // by (sign, scale, bet): too small first
  uint64_t alarm_sample_ = 0;
  uint64_t alarm_step_ = 0;
  std::array<bool, 2> side_alarmed_{};
  uint64_t count_ = 0;
  uint64_t steps_ = 0;
  uint64_t refused_ = 0;
  bool population_unknown_ = false;
  // Welford over samples; over steps, the sums that give sum_t (S_t - n_t mean)^2, about an origin.
  double mean_ = 0;
  double squares_ = 0;
  double origin_ = 0;
  double step_ss_ = 0;
  double step_sn_ = 0;
  double step_nn_ = 0;
  double alike_ = 0;  // sum of squared sizes of groups of samples that are alike
  double zero_squares_ = 0;
  uint64_t zero_sums_ = 0;
  uint64_t rounded_ = 0;
  uint64_t misrounded_ = 0;
};

}  // namespace plumbline::rules
