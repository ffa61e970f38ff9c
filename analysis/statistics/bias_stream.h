// Detects a bias. The test may be evaluated after every step, without end, and keeps its
// false-alarm probability below alpha. An interval gives the size of the bias.
//
// Wealth is the mean, over scales S in {1, 4, 16, 64} ulp, bets lambda in {.05, .1, .2, .4, .7} and
// both signs, of prod(1 + lambda (±x_i - b_i) / (1 + max(b_i, 0))), x_i = clip(e_i / S, ±1). The
// budget is b = .05 / S. The stream raises an alarm once, permanently, when wealth reaches 1 /
// alpha (Ville's inequality; Waudby-Smith and Ramdas, "Estimating means of bounded random variables
// by betting", 2023).
//
// Why the level holds. Given all that came before, each factor has expectation at most 1 if the
// conditional mean of ±x_i is at most b_i. Two readings ensure that, and under each the stream must
// stay silent:
//   (a) Nothing is assumed about the data. The M elements of a step are fixed, their clipped mean
//       is within the budget, and the only randomness is which elements were drawn, in which order.
//       Given the draws so far, the mean of the rest is at most
//       (M b - sum of the drawn x) / (M - i + 1). Elements may share data, and steps may depend on
//       each other in any way.
//   (b) The elements are noise that the budget of a single step does not bound: each has
//       conditional mean within the budget given the earlier ones. If a tensor has few elements and
//       all are drawn, the mean of one step exceeds .05 ulp by chance, and (a) alone would report
//       that as a bias.
// So b_i is the larger of b and the value of (a). This gives the smaller bet and is valid under (a)
// and (b). If a bias is real, the two differ only while chance works against it.
//
// Requirements on the caller:
// - Draws must be fresh. Element indices come from a hash of (run, step, site), so a step that
//   occurs twice (a restart that repeats it, evidence delivered twice) must be added once. A batch
//   that is replayed in other steps draws other elements. Under (a) that is harmless, but it adds
//   no information, so the interval, which assumes independent samples, is too narrow by the root
//   of the number of repeats.
// - Elements of one step that share one error (a tensor filled with one value) are one observation
//   under (b). So from the second step on, the interval is never narrower than the one from the
//   steps' sums (sandwich over steps). After one step only (a) applies: the finding is about that
//   step's elements, as `steps()` shows.
// - Samples that share their addends share their error. n samples in groups of n_g count as n_eff =
//   n^2 / sum n_g^2 (Kish's effective size, for errors that are equal within a group). The interval
//   widens by the root of n / n_eff, and there is no finding below FewestSamples(alpha) effective
//   samples. A tensor filled with one value is one rounding, however often it is drawn.
//
// Not thread-safe. NaN, infinite errors and those beyond 2^400 ulp are refused and counted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "analysis/statistics/sum_error.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Biases up to kBiasBudgetUlp are ignored. kBiasDeviations is the half-width of an interval in
// standard errors (two-sided 1e-6 of a normal distribution).
inline constexpr double kBiasBudgetUlp = 0.05;
inline constexpr double kBiasDeviations = 4.9;

// Returns the smallest number of samples in which a bias of at least one ulp per sample raises the
// alarm. Every factor is at most 1 + .7 (1 - b) / (1 + b), and one of forty bets must bring the
// whole wealth.
double FewestSamples(double alpha);

enum class BiasSide { kNone = 0, kTooSmall = -1, kTooLarge = 1 };

class BiasStream {
 public:
  // `alpha` in [0, 1) is this stream's share of the run's (alpha_shares.h). If it is 0, the stream
  // never raises an alarm.
  explicit BiasStream(double alpha);

  // Adds the errors of one step, in the order in which they were drawn. `population` is the number
  // of elements that they were drawn from without replacement, judged or not. If it is nullopt, it
  // is not known; this is an assumption to list, and only reading (b) holds. `left_out` is the
  // number of further samples that were drawn but not judged (zero sums, set aside). The population
  // is assumed to have the same share of them.
  void Add(std::span<const double> errors, std::optional<uint64_t> population,
           uint64_t left_out = 0);
  // Adds the samples of a step. Their zero sums enter rms and misround rate.
  void Add(const SumErrors& errors, std::optional<uint64_t> population);

  // True if the wealth reached 1 / alpha at any time. Never reset.
  bool alarmed() const { return alarm_sample_ != 0; }
  // The number, from 1, of the sample and of the Add at which it did; 0 if never.
  uint64_t alarm_sample() const { return alarm_sample_; }
  uint64_t alarm_step() const { return alarm_step_; }
  // True if one side's share of the wealth reached 1 / alpha, for either side or both. Never reset.
  bool alarmed(BiasSide side) const;

  double log_wealth() const;  // current; an e-value at any time that only depends on past data
  double log_wealth(BiasSide side) const;  // for one side's bets alone, also an e-value
  double alpha() const { return alpha_; }

  uint64_t count() const { return count_; }  // judged errors
  uint64_t steps() const { return steps_; }  // number of Adds with any errors
  uint64_t refused() const { return refused_; }
  bool population_unknown() const { return population_unknown_; }  // for some Add
  // Of the unclipped errors, in ulp. NaN without samples. With fewer than two samples, sd, low and
  // high are NaN.
  double mean() const;
  double sd() const;
  double low() const { return mean() - half_width(); }
  double high() const { return mean() + half_width(); }
  // 4.9 standard errors: the larger of sd / sqrt(n) and that of the steps' sums.
  double half_width() const;
  double rms() const;              // including zero sums
  double misround_rate() const;    // of Add(SumErrors); NaN without any
  double effective_count() const;  // n_eff; count() if no two samples are known to share addends

  // Returns the side on which the whole interval exceeds the budget. If the interval overlaps the
  // budget, returns kNone.
  BiasSide interval_side() const;
  // Returns LEVEL_ERROR if the interval's nearer end is at least 1 ulp, LEVEL_WARNING if it exceeds
  // the budget, else LEVEL_UNSPECIFIED.
  v1::Level interval_level() const;
  // For the finding: those of the interval, if that side raised an alarm.
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

  // m * 2^exponent, so that a product neither overflows nor underflows.
  struct Scaled {
    double m = 1;
    int64_t exponent = 0;
    void Persist(Archive& a) { a(m, exponent); }
  };
  // The sum of the values drawn in this step, by (sign, scale).
  using Drawn = std::array<double, 8>;

  void Bet(double e, Drawn& drawn, double left, double population);
  void Look();
  void MeasureStep(std::span<const double> errors);
  double LogMean(size_t first, size_t last) const;

  double alpha_;
  double threshold_;                          // of the wealth, times kProducts
  std::array<Scaled, kProducts> products_{};  // by (sign, scale, bet): too small first
  uint64_t alarm_sample_ = 0;
  uint64_t alarm_step_ = 0;
  std::array<bool, 2> side_alarmed_{};
  uint64_t count_ = 0;
  uint64_t steps_ = 0;
  uint64_t refused_ = 0;
  bool population_unknown_ = false;
  // Welford over samples. Over steps: the sums for sum_t (S_t - n_t mean)^2, about an origin.
  double mean_ = 0;
  double squares_ = 0;
  double origin_ = 0;
  double step_ss_ = 0;
  double step_sn_ = 0;
  double step_nn_ = 0;
  double alike_ = 0;  // sum of squared sizes of groups of samples that share addends
  double zero_squares_ = 0;
  uint64_t zero_sums_ = 0;
  uint64_t rounded_ = 0;
  uint64_t misrounded_ = 0;
};

}  // namespace plumbline::analysis
