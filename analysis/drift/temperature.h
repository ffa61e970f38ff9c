// Detects a temperature on one side from the slopes of d = log pi - log mu, for all tokens and for
// parts of them (rollout/slices.h). Not thread-safe.
#pragma once

#include "analysis/drift/values/values.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Slopes of fresh tokens: d on log pi + H_pi, on log mu + H_pi, and on log mu.
struct DriftSlopes {
  ClusteredSlope on_entropy, on_centred, on_rollout;
  // If the entropy is not recorded, it is NaN.
  void Add(double train, double rollout, double entropy, ContextKey context = kOwnContext);
  void EndSequence();
  void Persist(Archive& a) { a(on_entropy, on_centred, on_rollout); }
};

// If the trainer's temperature is 1 - c relative to the rollout's, then log pi = log mu + c (log pi
// + H_pi), up to a term common to a context. So d has slope c on x = log pi + H_pi.
//
// Noise n of the trainer alone is in d and in x: the slope is (c v + s^2) / (v + s^2), where v is
// the variance of x without it. So dropout that was not switched off, with s^2 >= 1.5 v, looks like
// a temperature of 0.4 with R^2 = 0.6. Noise of the rollout is only in d. On x' = log mu + H_pi the
// roles are exchanged: the trainer's noise is not in x', and the rollout's makes the slope smaller.
// A temperature has an effect on both slopes. So the test requires that the signs are equal, that x
// explains most of d, and x' half as much. If no entropy is recorded, the slope on log mu gives
// only the sign.
struct TemperatureMark {
  bool by_entropy = false;  // both fits hold: slope and temperature are known
  bool by_rollout = false;  // only the fit on log mu holds: the sign is known
  SlopeFit fit;
  SliceName part;  // the part of the tokens that the fit uses
  bool found() const { return by_entropy || by_rollout; }
};

// Tests the pool, then its parts of at least 8 sequences, by Student's t. If the pool's slope
// explains less than 60 % of d, and a worker's slope explains more of its own, returns the
// worker's. `most` is the false-alarm probability of all these tests together, for one call. Each
// part gets a share of it.
TemperatureMark FindTemperature(const RolloutSlices<DriftSlopes>& slopes, double tokens,
                                double most);

}  // namespace plumbline::analysis
