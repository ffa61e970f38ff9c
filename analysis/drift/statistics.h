// Everything that the drift rules know of one site's tokens so far: how large d = log pi - log mu
// is, where, with what it moves, and the marks that the causes leave. One pass, flat memory but for
// the per-step series. Pure functions of the sequences in the order they are taken; not
// thread-safe.
//
// "Fresh" tokens have lag 0, or no recorded lag. Later epochs over a batch are counted and left
// out: by then the trainer has learnt from these tokens, unless the version says otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/drift/fit.h"
#include "analysis/drift/lattice.h"
#include "analysis/drift/moments.h"
#include "analysis/drift/series.h"
#include "analysis/drift/staleness.h"
#include "analysis/drift/strata.h"
#include "analysis/drift/temperature.h"
#include "analysis/picture/picture.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::rules {

// What a record declares, over its sequences. A number that two sequences give differently is
// `mixed` and reads NaN.
struct DriftDeclared {
  v1::LogprobMode mode = v1::LOGPROB_MODE_ABSENT;
  double temperature = kNotRecorded;
  double top_p = kNotRecorded;
  double top_k = kNotRecorded;
  bool mixed = false;
  bool heats = false, cuts = false;  // some sequence declares T != 1; top-p or top-k

  bool says_temperature() const { return heats; }
  bool says_truncation() const { return cuts; }
  void Persist(Archive& a) { a(mode, temperature, top_p, top_k, mixed, heats, cuts); }
};

struct DriftStatistics {
  void BeginStep(uint32_t attempt, int64_t step) { series.BeginStep(attempt, step); }
  void Take(const RolloutSequence& sequence);

  uint64_t sequences = 0;
  uint64_t later_epochs = 0;  // sequences left out
  uint64_t judged = 0;        // tokens, non-finite ones included
  uint64_t fresh_tokens = 0, stale_tokens = 0;
  uint64_t with_lag = 0;      // tokens whose lag is recorded
  uint64_t with_entropy = 0;  // whose log pi has its entropy
  uint64_t differing_ids = 0;

  DriftMoments fresh, stale;
  DriftHistogram sizes;  // of fresh tokens
  DriftStrata strata;
  DriftSeries series;
  DriftDeclared declared;

  // Of fresh tokens: d on log pi + H_pi and on log mu, by parts; d + d^2/2 on the advantage.
  RolloutSlices<DriftSlopes> slopes;
  ClusteredSlope on_advantage;
  // -d - d^2/2 of fresh tokens with log mu < 0: 0 up to third order for noise, the missing mass for
  // truncation.
  ClusteredMean lost_mass;
  // min(k3, 1) and -d of fresh tokens: how sure it is that drift is as large as it looks.
  ClusteredMean bounded_k3, minus_d;
  // min(d^2, 1/4) of fresh tokens on the tokens that a prefix cache served.
  ClusteredSlope on_cached;
  // d^2/2 by lag; around changes of version inside a sequence; against a forward of the trainer's
  // own at the version that drew the token.
  LagRegression by_lag;
  VersionJumps jumps;
  StalenessSplit split;
  uint64_t with_behaviour = 0;  // tokens whose log pi_v is recorded and finite

  // Prompts of later turns against what earlier turns logged; min(d^2, 1/4) of fresh tokens, summed
  // over those from the first turn on whose prompt was tokenised again.
  TurnPrefixes turns;
  double after_other_prompt = 0;

  // log pi less log mu of the same token, the one before, the one after, where all three are
  // recorded.
  DriftCell unshifted, shifted_back, shifted_forward;

  // Single fresh tokens, to be drawn: log pi, log mu, H_pi (NaN: not recorded), d.
  PointSample drawn;

  // log mu = 0; of these, where the trainer gives less than a half.
  uint64_t zeros = 0, unlikely_zeros = 0;
  // Tokens of sequences all of whose values lie on a 16-bit grid, by side, and the mean square that
  // such rounding gives (half units squared over 3), summed over tokens.
  uint64_t gridded_train = 0, gridded_rollout = 0;
  double rounding_squares = 0;
  DriftLattice lattice;  // of fresh d

  // Engine against engine, of sequences that were computed again.
  uint64_t rescored = 0;
  ClusteredMean rescore_k2;

  // Trainer against trainer: half the squared difference of log pi where a step holds a sequence
  // again at the same train_version, which says that nothing was learnt between; and of log pi from
  // log pi_v at lag 0.
  ClusteredMean trainer_k2, own_k2;

  DriftMoments all() const;       // fresh and stale
  double rounding_share() const;  // of the fresh tokens' mean square that 16-bit grids explain

  // Between sequences broken_turn_ is not looked at.
  void Persist(Archive& a) {
    a(sequences, later_epochs, judged, fresh_tokens, stale_tokens, with_lag, with_entropy);
    const uint32_t version = a.Version(4, 3);
    a(differing_ids, fresh, stale, sizes, strata, series, declared, slopes);
    a(on_advantage, lost_mass, bounded_k3, minus_d, on_cached, by_lag);
    a(unshifted, shifted_back, shifted_forward, zeros, unlikely_zeros, gridded_train);
    a(gridded_rollout, rounding_squares, rescored, rescore_k2, trainer_k2);
    a(jumps, split, with_behaviour, turns, after_other_prompt, lattice, own_k2);
    a(last_id_, last_version_, last_train_);
    if (version >= 4) a(drawn);
  }

 private:
  void TakeAgain(const RolloutSequence& sequence);
  void Declare(const RolloutSequence& sequence);
  void TakeToken(const RolloutSequence& sequence, const RolloutToken& token);
  void TakeFresh(const RolloutSequence& sequence, const RolloutToken& token, double d,
                 ContextKey context);
  void TakeBehaviour(const RolloutToken& token, bool at_lag_0, ContextKey context);
  void TakeShifts(const RolloutSequence& sequence);

  // The last sequence's, for its copy, which comes next.
  std::string last_id_;
  int64_t last_version_ = kNoVersion;
  std::vector<double> last_train_;
  int64_t broken_turn_ = TurnPrefixes::kNoTurn;  // of the open sequence
};

}  // namespace plumbline::rules
