// The S-test: were the tokens drawn from the logged distribution, or from a sharper or flatter one?
//
// If a token is drawn from p, x = -ln p(token) - H(p) has conditional mean 0: its sum is a
// martingale. A sampler at T < 1, or one that cuts the tail, draws likely tokens too often: the sum
// falls.
//
// - Rows of full logits: psi(theta) = ln E_p exp(theta x) is known, exp(theta x - psi(theta)) has
// mean
//   1 exactly, theta = ±2^-1 .. ±2^-7.
// - The rollout's own H and V = Var(-ln mu): E x = 0 and E x^2 = V are known, and nothing else. So
//   is the mean of any bet of second order: with s = theta or -theta
//     F(x) = 1 + s x + s^2/2 (x^2 - V) = ((1 + s x)^2 + 1 - s^2 V) / 2
//   has mean 1 exactly, is at least 1/4 where s^2 V <= 1/2, and is exp(s x) over its mean up to
//   the third order in s: no bound is lost to, as Bennett's V/b^2 (e^(s b) - 1 - s b) was (a
//   quarter of the evidence at T = 0.9, three quarters at T = 1.1 of a large vocabulary). theta =
//   2^-1 .. 2^-7, and sqrt(1/(2 V)) where that is less: V is known before the token is drawn. Where
//   F turns (s x < -1) its least value is taken, and above 0 x is cut at 8 nats, so that no token
//   speaks for the side it is not on, and a few forced tokens do not decide: both make F smaller.
//   So do the half units of the logged values, taken off |1 + s x| and added to V. These are
//   supermartingales, and 1/alpha is reached with probability at most alpha, ever. Wealth is looked
//   at at the ends of steps.
// - Without V: Student's t of the sums over sequences of x, looked at once, at the end.
// - The trainer's columns: the same of rho (-ln pi - H_pi), whose mean under mu is that of -ln pi -
// H_pi
//   under pi, 0, wherever mu can draw all that pi can. The sums of squares are about 0, not about
//   the mean, and roundings are
//   taken to go all one way: both err on the quiet side. Approximate: the law of large numbers does
//   the rest.
// The best of these that the record has columns for is used, by the pool and by its parts
// (rollout/slices.h), each with its share of alpha. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "analysis/rollout/sequence.h"
#include "analysis/rollout/slices.h"
#include "analysis/rollout/wealth.h"
#include "base/archive.h"

namespace plumbline::rules {

// Which side of 0 the sum of x lies on.
enum class SamplerSide { kNone, kBelow, kAbove };

// Sums of independent groups, of mean 0 if all is well.
class ClusterSum {
 public:
  // `slack`: the furthest that the rounding of recorded values can have moved the group's sum.
  void Add(double group, double slack);
  uint64_t groups() const { return groups_; }
  double sum() const { return static_cast<double>(sum_); }
  // Two-sided p-value of Student's t with groups - 1 degrees of freedom; 1 for fewer than
  // `kFewest`.
  double p_value() const;
  double t() const;  // of what is left of the sum when all rounding went its way
  static constexpr uint64_t kFewest = 50;
  void Persist(Archive& a) { a(groups_, sum_, squares_, slack_); }

 private:
  uint64_t groups_ = 0;
  long double sum_ = 0, squares_ = 0, slack_ = 0;
};

class SamplerTest {
 public:
  enum class By { kNothing, kLogits, kRollout, kRolloutEntropy, kTrainer };
  enum class Entry { kEnters, kLaterEpoch, kFiltered, kRescored };

  explicit SamplerTest(double alpha) : alpha_(alpha) {}

  Entry Add(const RolloutSequence& sequence);
  void AddRow(const v1::LogitsRow& row);
  void EndStep();

  // What the verdict rests on.
  By by() const;
  // Alarmed at the end of some step (sequential tests).
  SamplerSide alarmed() const { return alarmed_; }
  // The one look of the approximate tests; kNone for the others. Only at the end of a run.
  SamplerSide FinalLook() const;

  double alpha() const { return alpha_; }
  // ln of the sum over the parts of share * wealth.
  double log_wealth() const;
  // Of by()'s approximate test: the least of p / share over the parts, at most 1.
  double p_value() const;
  uint64_t tokens() const;
  uint64_t groups() const;
  // The part that the evidence is mostly of.
  struct Leader {
    SliceName name;
    uint64_t tokens = 0, groups = 0;
    // Mean of x as by() has it, and the temperature at which the tokens look drawn, to first order:
    // 1 / (1 - sum x / sum V). NaN where V is unknown.
    double mean = kNotRecorded, temperature = kNotRecorded;
    SamplerSide side = SamplerSide::kNone;
  };
  Leader leader() const;
  Leader pool() const { return Describe({}, slices_.pool()); }

  uint64_t left_out(Entry reason) const { return left_out_[static_cast<size_t>(reason)]; }
  uint64_t non_finite() const { return non_finite_; }
  // Tokens that only the trainer's columns could speak for, and whose support is cut or unknown.
  uint64_t cut() const { return cut_; }
  // The record says that it was drawn otherwise than logged: raw values beside T != 1, top-p or
  // top-k.
  bool declared() const { return declared_; }
  double declared_temperature() const { return declared_temperature_; }
  void Declare(double temperature);

  void Persist(Archive& a) {
    a.Version(2, 2);
    a(alpha_, slices_, alarmed_, left_out_, non_finite_, cut_, declared_, declared_temperature_);
  }

 private:
  static constexpr size_t kBets = 7;
  struct Sums {
    uint64_t tokens = 0;
    long double x = 0, v = 0;
    void Persist(Archive& a) { a(tokens, x, v); }
  };
  using Both = std::array<double, 2 * kBets>;  // below, then above
  struct Group {
    double sum = 0, slack = 0;
    bool any = false;
    void Add(double x, double of_rounding) {
      sum += x;
      slack += of_rounding;
      any = true;
    }
  };
  struct Part {
    Wealth<2 * kBets> wealth;
    Sums rows, own, entropy_only, trained;
    ClusterSum entropy_groups, trained_groups;
    Group of_entropy, of_train;  // of the open sequence
    const Sums& Of(SamplerTest::By by) const;
    const ClusterSum& Groups(SamplerTest::By by) const;
    void EndSequence(bool entropy_counts);
    // of_entropy and of_train are of the open sequence.
    void Persist(Archive& a) {
      a(wealth, rows, own, entropy_only, trained, entropy_groups, trained_groups);
    }
  };

  // One token; false: it has no such columns.
  bool AddOwn(const RolloutSequence& sequence, const RolloutToken& token);
  bool AddTrained(const RolloutSequence& sequence, const RolloutToken& token);
  Leader Describe(const SliceName& name, const Part& part) const;

  double alpha_;
  RolloutSlices<Part> slices_;
  SamplerSide alarmed_ = SamplerSide::kNone;
  uint64_t left_out_[4] = {};
  uint64_t non_finite_ = 0, cut_ = 0;
  bool declared_ = false;
  double declared_temperature_ = kNotRecorded;
};

}  // namespace plumbline::rules
