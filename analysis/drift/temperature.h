// A temperature on one side, from the slopes of d = log pi - log mu, for all tokens and for parts
// of them (rollout/slices.h). Pure, not thread-safe.
#pragma once

#include "analysis/drift/fit.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::rules {

// Of fresh tokens: d on log pi + H_pi, on log mu + H_pi, and on log mu.
struct DriftSlopes {
  ClusteredSlope on_entropy, on_centred, on_rollout;
  // entropy NaN: not recorded.
  void Add(double train, double rollout, double entropy, ContextKey context = kOwnContext);
  void EndSequence();
  void Persist(Archive& a) { a(on_entropy, on_centred, on_rollout); }
};

// With the trainer at temperature 1 - c beside the rollout, log pi = log mu + c (log pi + H_pi) but
// for what a context shares: d has slope c on x = log pi + H_pi.
//
// Noise n of the trainer's alone is in d and in x: the slope is (c v + s^2) / (v + s^2), v the
// variance of x without it. Dropout that was left on, with s^2 >= 1.5 v, so passes for a
// temperature of 0.4 with R^2 = 0.6. Noise of the rollout's is in d alone. On x' = log mu + H_pi it
// is the other way round: the trainer's noise is not in x', the rollout's makes the slope smaller.
// A temperature shows on both: that is asked for, one sign and most of d explained by x, half as
// much by x'. Where no entropy is recorded, the slope on log mu gives the sign alone.
struct TemperatureMark {
  bool by_entropy = false;  // both fits: slope and temperature are known
  bool by_rollout = false;  // the fit on log mu alone: its sign is
  SlopeFit fit;
  SliceName part;  // the tokens that it is of
  bool found() const { return by_entropy || by_rollout; }
};

// The pool, then its parts of at least 32 sequences. `most`: the chance of a false alarm of all of
// them together at one look; a part has its share of it.
TemperatureMark FindTemperature(const RolloutSlices<DriftSlopes>& slopes, double tokens,
                                double most);

}  // namespace plumbline::rules
