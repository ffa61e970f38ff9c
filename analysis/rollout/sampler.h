// The S-test: tests whether the tokens were drawn from the logged distribution, or from a sharper
// or flatter one.
//
// If a token is drawn from p, x = -ln p(token) - H(p) has conditional mean 0, so its sum is a
// martingale. A sampler at T < 1, or one that cuts the tail, draws likely tokens too often, and the
// sum falls.
//
// - Rows of full logits: psi(theta) = ln E_p exp(theta x) is known, and exp(theta x - psi(theta))
//   has mean exactly 1, theta = ±2^-1 .. ±2^-7.
// - The rollout's own H and V = Var(-ln mu): only E x = 0 and E x^2 = V are known. They give the
//   mean of any bet of second order. With s = theta or -theta,
//     F(x) = 1 + s x + s^2/2 (x^2 - V) = ((1 + s x)^2 + 1 - s^2 V) / 2
//   has mean exactly 1, is at least 1/4 if s^2 V <= 1/2,
//   and equals exp(s x) over its mean up to the third order in s.
// So no bound reduces the evidence. (Bennett's V/b^2 (e^(s b) - 1 - s b) lost a quarter of the
//   evidence at T = 0.9, and three quarters at T = 1.1 of a large vocabulary.)
// theta = 2^-1 .. 2^-7, or sqrt(1/(2 V)) if that is smaller; V is known before the token is drawn.
// If F would rise again (s x < -1), its smallest value is used, so that no token counts for the
// opposite side. Above 0, x is limited to 8 nats, so that a few forced tokens do not decide. Both
// make F smaller. The half units of the logged values also make it smaller: they are subtracted
// from |1 + s x| and added to V. These are supermartingales, so the probability of ever reaching
// 1/alpha is at most alpha. Wealth is tested at the ends of steps.
// - Without V: Student's t of the sums over sequences of x, tested once, at the end.
// - The trainer's columns: the same for rho (-ln pi - H_pi). Its mean under mu is that of -ln pi -
// H_pi under pi, which is 0, if mu can draw all that pi can. The sums of squares are taken around
// 0, not around the mean, and roundings are assumed to have one sign. Both make the test more
//   conservative. The test is approximate and relies on the law of large numbers.
//
// Uses the best of these tests for which the record has columns, for the pool and for its parts
// (rollout/slices.h). Each part has its share of alpha. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "analysis/rollout/missing.h"
#include "analysis/rollout/sequence.h"
#include "analysis/rollout/slices.h"
#include "analysis/rollout/wealth.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The side of 0 on which the sum of x lies.
enum class SamplerSide { kNone, kBelow, kAbove };

// Sums over independent groups; the mean is 0 if the sampler is correct.
class ClusterSum {
 public:
  // `slack` is the largest change of the group's sum that rounding of the recorded values can have
  // caused.
  void Add(double group, double slack);
  uint64_t groups() const { return groups_; }
  double sum() const { return static_cast<double>(sum_); }
  // Returns the two-sided p-value of Student's t with groups - 1 degrees of freedom. If there are
  // fewer than `kFewest` groups, returns 1.
  double p_value() const;
  double t() const;  // t of the sum, reduced by the largest effect of rounding
  static constexpr uint64_t kFewest = 50;
  void Persist(Archive& a) { a(groups_, sum_, squares_, slack_); }

 private:
  uint64_t groups_ = 0;
  long double sum_ = 0, squares_ = 0, slack_ = 0;
};

class SamplerTest {
 public:
  enum class By { kNothing, kLogits, kRollout, kRolloutEntropy, kTrainer };
  enum class Entry { kEnters, kLaterEpoch, kFiltered, kRescored, kCopy };

  explicit SamplerTest(double alpha) : alpha_(alpha) {}

  // From the next sequence on, also uses masked tokens with values of both sides, because a mask
  // that depends on the ratio also depends on x (see record.h).
  void UseMasked() { use_masked_ = true; }
  Entry Add(const RolloutSequence& sequence);
  void AddRow(const v1::LogitsRow& row);
  void EndStep();

  // Returns the kind of columns that the verdict uses.
  By by() const;
  // Returns the side of an alarm at the end of some step (sequential tests).
  SamplerSide alarmed() const { return alarmed_; }
  // Returns the side on which the approximate tests alarm. They test only once, at the end of a
  // run. For other tests, returns kNone.
  SamplerSide FinalLook() const;

  double alpha() const { return alpha_; }
  // ln of the sum over the parts of share * wealth.
  double log_wealth() const;
  // For the approximate test of by(): returns the smallest p / share over the parts, at most 1.
  double p_value() const;
  uint64_t tokens() const;
  uint64_t groups() const;
  // The part that contributes most of the evidence.
  struct Leader {
    SliceName name;
    uint64_t tokens = 0, groups = 0;
    // Mean of x as by() defines it, and the temperature with which the tokens seem to be drawn, to
    // first order: 1 / (1 - sum x / sum V). The temperature is NaN if V is unknown.
    double mean = kNotRecorded, temperature = kNotRecorded;
    SamplerSide side = SamplerSide::kNone;
  };
  Leader leader() const;
  Leader pool() const { return Describe({}, slices_.pool()); }

  uint64_t left_out(Entry reason) const { return left_out_[static_cast<size_t>(reason)]; }
  uint64_t non_finite() const { return non_finite_; }
  // Returns the test whether values are missing independently of the tokens. If they are not, there
  // is no alarm.
  const MissingValues& missing() const { return missing_; }
  // Returns the number of tokens that only the trainer's columns could test, but whose support is
  // truncated or unknown.
  uint64_t cut() const { return cut_; }
  // True if the record declares a different distribution than the logged one: raw values with T !=
  // 1, top-p or top-k.
  bool declared() const { return declared_; }
  double declared_temperature() const { return declared_temperature_; }
  void Declare(double temperature);

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(missing_, use_masked_);
    a(alpha_, slices_, alarmed_, left_out_, non_finite_, cut_, declared_, declared_temperature_);
  }

 private:
  static constexpr size_t kBets = 7;
  struct Sums {
    uint64_t tokens = 0;
    long double x = 0, v = 0;
    void Persist(Archive& a) { a(tokens, x, v); }
  };
  using Both = std::array<double, 2 * kBets>;  // bets for "below", then for "above"
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
    Group of_entropy, of_train;  // groups of the open sequence
    const Sums& Of(SamplerTest::By by) const;
    const ClusterSum& Groups(SamplerTest::By by) const;
    void EndSequence(bool entropy_counts);
    // of_entropy and of_train belong to the open sequence, so they are not stored.
    void Persist(Archive& a) {
      a(wealth, rows, own, entropy_only, trained, entropy_groups, trained_groups);
    }
  };

  // Take one token. Return false if the token does not have the columns.
  bool AddOwn(const RolloutSequence& sequence, const RolloutToken& token);
  bool AddTrained(const RolloutSequence& sequence, const RolloutToken& token);
  Leader Describe(const SliceName& name, const Part& part) const;

  double alpha_;
  RolloutSlices<Part> slices_;
  SamplerSide alarmed_ = SamplerSide::kNone;
  MissingValues missing_;
  bool use_masked_ = false;
  uint64_t left_out_[5] = {};
  uint64_t non_finite_ = 0, cut_ = 0;
  bool declared_ = false;
  double declared_temperature_ = kNotRecorded;
};

}  // namespace plumbline::analysis
