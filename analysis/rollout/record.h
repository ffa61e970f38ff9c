// The E-test: tests whether the logged tokens were drawn from the distribution whose
// log-probabilities were logged.
//
// Upward. Let a token be drawn from mu(.|prefix), and let pi be any distribution that does not
// depend on that draw. Then E[rho | prefix] = sum over mu's support of mu pi/mu = pi(support) <= 1,
// with rho = pi/mu. So for lambda in [0, 1] the factor 1 + lambda (rho - 1) >= 0 has conditional
// mean at most 1. The product over tokens is a non-negative supermartingale, and so is a mixture
// over fixed lambdas. By Ville's inequality P(wealth ever reaches 1/alpha) <= alpha. The logged
// value is rho to within e^eta, where eta is the sum of the half units of both logged values. So
// rho^- = rho e^-eta is at most the true rho.
//
// Downward. If mu's support contains pi's, E[rho | prefix] = 1 and
//   E max(0, 1 + l (1 - rho)) = 1 + E[(l (rho - 1) - 1)^+] <= 1 + l E[rho; rho > 1 + 1/l]
//                             = 1 + l pi(rho > 1 + 1/l | prefix) <= 1 + l kappa / ln^2(1 + 1/l),
// by Markov's inequality on the square of d^+ = max(0, ln rho), where kappa >= E_pi[(d^+)^2 |
// prefix] is declared. (A bound on E_pi[d^2] is also a bound on E_pi[(d^+)^2]. Values below 0 need
// no bound.) Dividing by the right side gives factors of conditional mean at most 1. E_pi[(d^+)^2]
// = E_mu[rho (d^+)^2], whose mean is measured. If it exceeds kappa, the premise fails. If the full
// logits were recorded, the conditional mean on the left is known and used as the divisor. This
// needs neither kappa nor equal supports.
//
// If sequences were selected after they were seen, and the kept share is always at least s, then
// E[F | kept] <= E[F] / s, where F is the sequence's factor. So s F has conditional mean at most 1.
// If values were computed again, their engine error differs from the error at the draw. To second
// order, it increases E[rho] by at most its second moment 2 k2, so rho is divided by 1 + 2 k2.
//
// The test needs masks that are known before the token is drawn. A loss that rejects tokens by
// their ratio (IcePop, truncated importance sampling) masks afterwards. Therefore a second test,
// which also uses masked tokens with values of both sides (UseMasked), must agree. If the mask was
// known before the draw, the first test is valid; otherwise the second one is. The probability that
// both alarm is at most that of the valid one.
//
// If values are missing for some tokens (rollout/missing.h), the sum of mu pi/mu = pi over the
// other tokens covers only a part of mu's support, so it is at most 1. So with rho = 0 for tokens
// without a value, the upward factor has a mean of at most 1, for any reason why values are
// missing. The test does this if missing values depend on the token. Then the downward side has no
// evidence.
//
// Keeps every product for the pool and for its parts (rollout/slices.h). The test uses the sum of
// their wealths, weighted by their shares.
//
// Wealth is tested at the ends of steps, so the order within a step does not matter. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rollout/missing.h"
#include "analysis/rollout/sequence.h"
#include "analysis/rollout/slices.h"
#include "analysis/rollout/wealth.h"
#include "base/archive.h"

namespace plumbline::analysis {

// A token, with the data that a person needs to find it.
struct TokenWitness {
  std::string sequence;
  int64_t step = 0;
  int64_t position = 0;
  int64_t token = -1;
  double train = 0;
  double rollout = 0;
  void Persist(Archive& a) { a(sequence, step, position, token, train, rollout); }
};

// The tokens with the largest values, at most three. If values are equal, the first is kept.
class Extremes {
 public:
  static constexpr size_t kMost = 3;
  bool Wants(double value) const {
    return found_.size() < kMost || value > found_.back().first;  // false for NaN once full
  }
  void Add(double value, TokenWitness witness);
  const std::vector<std::pair<double, TokenWitness>>& found() const { return found_; }
  void Persist(Archive& a) { a(found_); }

 private:
  std::vector<std::pair<double, TokenWitness>> found_;  // largest first
};

// Moments of d = log pi - log mu over tokens for which both are finite. Values are not clamped.
struct RatioMoments {
  uint64_t n = 0;
  long double d = 0, d2 = 0;  // sums of d and d^2
  long double k3 = 0;         // sum of rho - 1 - d
  long double rho_d2 = 0;     // sum of rho d^2
  long double rho_rise2 = 0;  // sum of rho (d^+)^2

  // `gain` is e^d - 1.
  void Add(double d, double gain);
  double k1() const { return n > 0 ? static_cast<double>(-this->d / n) : kNotRecorded; }
  double k2() const { return n > 0 ? static_cast<double>(d2 / n / 2) : kNotRecorded; }
  double mean_k3() const { return n > 0 ? static_cast<double>(k3 / n) : kNotRecorded; }
  double mean_rho_rise2() const {
    return n > 0 ? static_cast<double>(rho_rise2 / n) : kNotRecorded;
  }
  double mean_rho_d2() const { return n > 0 ? static_cast<double>(rho_d2 / n) : kNotRecorded; }
  void Persist(Archive& a) { a(n, d, d2, k3, rho_d2, rho_rise2); }
};

inline constexpr double kDefaultKappa = .02;

class RecordTest {
 public:
  // If the record is true, each side alarms with probability at most its part of alpha.
  explicit RecordTest(double alpha);

  // From the next sequence on, also uses masked tokens with values of both sides.
  void UseMasked() { use_masked_ = true; }

  // The reason why a sequence is not used; kEnters if it is used.
  enum class Entry { kEnters, kLaterEpoch, kFiltered, kRescored, kCopy };
  Entry Add(const RolloutSequence& sequence);
  // Adds a row of full logits. `downward_means` has 7 entries or is empty.
  void AddRow(const v1::LogitsRow& row, int64_t step);
  // Ends a step: tests the wealth.
  void EndStep();

  // True if the wealth reached 1/alpha at the end of some step.
  bool alarmed_up() const { return alarm_token_ != 0; }
  // True if the downward side alarmed at the end of some step, with the default kappa.
  bool alarmed_down() const { return alarmed_down_; }
  // True if the downward side alarms now, and its premise holds as far as it can be measured. Rows
  // of full logits need no kappa.
  bool DownAlarm(double kappa) const;
  // Number of tokens used when the upward wealth first reached 1/alpha at the end of a sequence, in
  // the step that raised the alarm. 0 if there was none.
  uint64_t alarm_token() const { return alarm_token_; }
  // ln of the sum over the parts of share * wealth.
  double log_wealth_up() const;
  double log_wealth_down(double kappa) const;
  // The part that contributes most of the wealth.
  struct Leader {
    SliceName name;
    uint64_t tokens = 0;
    double mean_ratio = 0;  // mean of pi/mu
  };
  Leader LeaderUp() const;
  Leader LeaderDown(double kappa) const;
  double alpha_up() const { return alpha_ * 2 / 3; }
  double alpha_down() const { return alpha_ / 3; }
  // True if the downward side's premise fails: the mean of rho (d^+)^2 exceeds kappa, or is not
  // finite.
  bool Beyond(double kappa) const {
    return bounded_tokens_ > 0 && !(moments_.mean_rho_rise2() <= kappa);
  }

  uint64_t tokens() const { return tokens_; }  // number of tokens used
  const RatioMoments& moments() const { return moments_; }
  uint64_t left_out(Entry reason) const { return left_out_[static_cast<size_t>(reason)]; }
  uint64_t entered() const { return left_out(Entry::kEnters); }  // number of sequences used
  uint64_t non_finite() const {
    return non_finite_;
  }  // tokens with a value that is NaN, or not the logarithm of a probability in (0, 1]
  // Returns the test whether values are missing independently of the tokens.
  const MissingValues& missing() const { return missing_; }
  // Tokens with log pi = -infinity, which are used with rho = 0.
  uint64_t impossible() const { return impossible_; }
  uint64_t positive() const {
    return positive_;
  }  // tokens with log mu above 0 by more than its rounding, which are used
  // Tokens with log mu = 0 and log pi < ln 1/2.
  uint64_t zero_filled() const { return zero_filled_; }
  uint64_t differing_ids() const { return differing_ids_; }
  const TokenWitness& first_differing() const { return first_differing_; }
  bool rescored_entered() const { return rescored_entered_; }
  // True if some used sequence does not declare that all sequences were kept, so that this is an
  // assumption.
  bool assumed_all() const { return assumed_all_; }
  bool assumed_sampled() const { return assumed_sampled_; }
  double largest_eta() const { return largest_eta_; }
  const Extremes& largest() const { return largest_; }    // tokens with the largest d
  const Extremes& smallest() const { return smallest_; }  // tokens with the smallest d

  void Persist(Archive& a) {
    a.Version(4, 4);
    a(alpha_, crossed_, alarm_token_, alarmed_down_, slices_, bounded_tokens_, missing_);
    a(use_masked_);
    a(tokens_, moments_, left_out_, non_finite_, impossible_, positive_, zero_filled_);
    a(differing_ids_, first_differing_, rescored_entered_, assumed_all_);
    a(assumed_sampled_, largest_eta_, largest_, smallest_);
  }

 private:
  using Means = google::protobuf::RepeatedField<double>;

  // The place of a token.
  struct Place {
    const std::string& sequence;
    int64_t step;
    const RolloutToken& token;
    TokenWitness Witness() const;
  };

  // Uses one token. `slack` is added to the rounding on both sides.
  void Enter(const RolloutSequence& sequence, const RolloutToken& token, double slack);
  void Bet(double d, double slack, const Means* means, const Place& place);
  template <typename EachPart>
  void BetOn(double d, double slack, const Means* means, const EachPart& each);
  void Look();
  // Counts values that cannot be used. Returns true if the token can be used.
  bool Usable(double train, double rollout);

  static constexpr size_t kUp = 9, kDown = 7;
  struct Part {
    Wealth<kUp> up;
    Wealth<kDown> down;
    uint64_t tokens = 0;
    uint64_t bounded = 0;  // tokens to which the bound by kappa applies
    uint64_t missing = 0;  // tokens without a value
    long double gain = 0;  // sum of rho - 1
    double rise2 = 0;      // sum of rho (d^+)^2
    bool Within(double kappa) const {
      return bounded == 0 || rise2 <= kappa * static_cast<double>(bounded);
    }
    double LogDown(double kappa) const;
    // If `missing_counts`, uses rho = 0 for tokens without a value.
    double LogUp(bool missing_counts) const;
    void Persist(Archive& a) { a(up, down, tokens, bounded, missing, gain, rise2); }
  };
  template <typename LogOf>
  double LogSumOf(const LogOf& log_of) const;
  template <typename LogOf>
  Leader LeaderOf(const LogOf& log_of) const;

  double alpha_;
  uint64_t crossed_ = 0;  // the token of this step at which the wealth crossed
  uint64_t alarm_token_ = 0;
  bool alarmed_down_ = false;
  RolloutSlices<Part> slices_;
  uint64_t bounded_tokens_ = 0;  // tokens to which the bound by kappa applies
  uint64_t tokens_ = 0;
  RatioMoments moments_;
  MissingValues missing_;
  bool use_masked_ = false;
  uint64_t left_out_[5] = {};
  uint64_t non_finite_ = 0, impossible_ = 0, positive_ = 0, zero_filled_ = 0;
  uint64_t differing_ids_ = 0;
  TokenWitness first_differing_;
  bool rescored_entered_ = false;
  bool assumed_all_ = false, assumed_sampled_ = false;
  double largest_eta_ = 0;
  Extremes largest_, smallest_;
};

}  // namespace plumbline::analysis
