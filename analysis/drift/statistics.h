// The drift statistics of one site's tokens so far: the size and the place of d = log pi - log mu,
// its dependence on other quantities, and the marks that causes leave. Needs one pass, and constant
// memory except for the per-step series. The result depends only on the sequences and their order.
// Not thread-safe.
//
// "Fresh" tokens have lag 0, or no recorded lag. Later epochs over a batch are counted but not
// used: by then the trainer has learnt from these tokens, unless the version states otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/drift/course.h"
#include "analysis/drift/first_tokens.h"
#include "analysis/drift/moments.h"
#include "analysis/drift/recurrence.h"
#include "analysis/drift/series.h"
#include "analysis/drift/staleness.h"
#include "analysis/drift/strata.h"
#include "analysis/drift/temperature.h"
#include "analysis/drift/values/values.h"
#include "analysis/picture/picture.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::analysis {

// The declarations of a record, over its sequences. If two sequences declare different numbers, the
// record is `mixed` and the number is NaN.
struct DriftDeclared {
  v1::LogprobMode mode = v1::LOGPROB_MODE_ABSENT;
  double temperature = kNotRecorded;
  double top_p = kNotRecorded;
  double top_k = kNotRecorded;
  bool mixed = false;
  bool heats = false, cuts = false;  // some sequence declares T != 1; top-p or top-k

  bool states_temperature() const { return heats; }
  bool states_truncation() const { return cuts; }
  void Persist(Archive& a) { a(mode, temperature, top_p, top_k, mixed, heats, cuts); }
};

struct DriftStatistics {
  void BeginStep(uint32_t attempt, int64_t step) { series.BeginStep(attempt, step); }
  void Take(const RolloutSequence& sequence);

  uint64_t sequences = 0;
  uint64_t later_epochs = 0;  // later epochs of sequences, which are not used
  // Copies of sequences (the same tokens and log mu with another id), which are not used.
  uint64_t copies = 0;
  uint64_t judged = 0;  // judged tokens, including non-finite ones
  uint64_t fresh_tokens = 0, stale_tokens = 0;
  uint64_t with_lag = 0;      // tokens with a recorded lag
  uint64_t with_entropy = 0;  // tokens whose log pi has an entropy
  uint64_t differing_ids = 0;

  DriftMoments fresh, stale;
  DriftHistogram sizes;  // sizes of d of fresh tokens
  DriftStrata strata;
  DriftSeries series;
  DriftDeclared declared;

  // For fresh tokens: d on log pi + H_pi and on log mu, by parts; d + d^2/2 on the advantage.
  RolloutSlices<DriftSlopes> slopes;
  ClusteredSlope on_advantage;
  // -d - d^2/2 of fresh tokens with log mu < 0: for noise 0 up to third order, for truncation the
  // missing mass.
  ClusteredMean lost_mass;
  // min(k3, 1) and -d of fresh tokens: the uncertainty of the drift's size.
  ClusteredMean bounded_k3, minus_d;
  // min(d^2, 1/4) of fresh tokens on the number of tokens that a prefix cache served.
  ClusteredSlope on_cached;
  // min(d^2, 1/4) of the first fresh tokens of sequences, and of later ones.
  FirstTokens first_tokens;
  FarOutliers far_outliers;  // of fresh tokens
  Recurrence recurrence;     // of fresh tokens
  VersionCourse versions;    // of tokens with a recorded lag
  // Fresh tokens with mu of a half or more and pi less than half of that; and those of them with pi
  // + mu above 1. If mu belongs to the likeliest token and pi to another one, there are none of the
  // latter.
  uint64_t likeliest = 0, unlikeliest = 0;
  // d^2/2 by lag; around changes of version inside a sequence; and against a forward pass of the
  // trainer at the version that drew the token.
  LagRegression by_lag;
  VersionJumps jumps;
  StalenessSplit split;
  uint64_t with_behaviour = 0;  // tokens with a recorded, finite log pi_v

  // Prompts of later turns compared with the logged tokens of earlier turns. after_other_prompt:
  // sum of min(d^2, 1/4) of fresh tokens, from the first turn on whose prompt was tokenised again.
  TurnPrefixes turns;
  double after_other_prompt = 0;

  // log pi minus log mu of the same token, the previous one, and the next one, if all three are
  // recorded.
  struct Shifts {
    DriftCell here, back, forward;
    void Merge(const Shifts& other);
    void Persist(Archive& a) { a(here, back, forward); }
  };
  Shifts shifts;
  std::map<std::string, Shifts> shifts_of;  // by worker, at most 64

  // Single fresh tokens for the drawing: log pi, log mu, H_pi (NaN if not recorded), d.
  PointSample drawn;

  // Tokens with log mu = 0, and those of them to which the trainer gives less than a half.
  uint64_t zeros = 0, unlikely_zeros = 0;
  // Per side: tokens of sequences whose values are all on a 16-bit grid. rounding_squares: the mean
  // square that such rounding causes (half units squared over 3), summed over tokens.
  uint64_t gridded_train = 0, gridded_rollout = 0;
  double rounding_squares = 0;
  DriftLattice lattice;      // lattice of d of fresh tokens
  UnitsFit units;            // log pi as a multiple of log mu, of fresh tokens
  uint64_t from_halves = 0;  // sequences whose sides were recorded separately

  // Engine against engine, for sequences that were computed again.
  uint64_t rescored = 0;
  ClusteredMean rescore_k2;

  // The trainer compared with itself. trainer_k2: half the squared difference of log pi, if a step
  // has a sequence twice at the same train_version, so that nothing was learnt between. own_k2: the
  // same for log pi and log pi_v at lag 0.
  ClusteredMean trainer_k2, own_k2;

  // True if every token of a record with both sides has the same number on both. Then it is not
  // certain that two programs computed them.
  bool same_numbers() const;
  DriftMoments all() const;  // moments of fresh and stale tokens
  double rounding_share()
      const;  // share of the fresh tokens' mean square that 16-bit grids explain

  // broken_turn_ is used within a sequence only, so it is not stored.
  void Persist(Archive& a) {
    a(sequences, later_epochs, judged, fresh_tokens, stale_tokens, with_lag, with_entropy);
    a.Version(9, 9);
    a(differing_ids, fresh, stale, sizes, strata, series, declared, slopes);
    a(on_advantage, lost_mass, bounded_k3, minus_d, on_cached, by_lag);
    a(shifts, shifts_of, recurrence, versions, zeros, unlikely_zeros, gridded_train);
    a(gridded_rollout, rounding_squares, rescored, rescore_k2, trainer_k2);
    a(jumps, split, with_behaviour, turns, after_other_prompt, lattice, own_k2);
    a(last_id_, last_version_, last_train_);
    a(drawn, units, from_halves);
    a(copies, first_tokens, likeliest, unlikeliest, far_outliers);
  }

 private:
  void TakeAgain(const RolloutSequence& sequence);
  void Declare(const RolloutSequence& sequence);
  void TakeToken(const RolloutSequence& sequence, const RolloutToken& token);
  void TakeFresh(const RolloutSequence& sequence, const RolloutToken& token, double d, double k3,
                 ContextKey context);
  void TakeVersions(const RolloutSequence& sequence);
  void TakeBehaviour(const RolloutToken& token, bool at_lag_0, ContextKey context);
  void TakeShifts(const RolloutSequence& sequence);

  // The last sequence's values, for its copy, which comes next.
  std::string last_id_;
  int64_t last_version_ = kNoVersion;
  std::vector<double> last_train_;
  // The first turn with another prompt in the open sequence.
  int64_t broken_turn_ = TurnPrefixes::kNoTurn;
};

}  // namespace plumbline::analysis
