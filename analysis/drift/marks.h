// What a cause of drift is named by, and how sure the name is: every threshold and confidence in
// one place.
//
// A confidence is the share of simulated runs so named that have that cause, of mixed causes at
// several sizes (tests/rules/drift_calibration_test.cc holds each to it), rounded down; at most
// 0.95, for the world holds causes that no simulation has.
// Not in that simulation, which does not make their evidence, so reasoned only: kByThirdPass,
// kByEngineItself and kByFlips.
#pragma once

#include <cstdint>

namespace plumbline::rules {

struct DriftMark {
  const char* cause;  // of the list in docs/rules/drift/logit-drift.md
  double confidence;
};

// log mu = 0 where the trainer gives less than a half. An honest top-p record holds zeros where one
// token was kept; below one half that needs a top-p below one half, or greedy sampling.
inline constexpr DriftMark kByZeros = {"zero-filled", 0.95};
inline constexpr uint64_t kFewestZeros = 3;
inline constexpr double kZeroShare = 1e-4;

// log pi against log mu of the token before or after leaves a quarter of d's variance. Honest
// neighbours are unrelated: the variance then rises.
inline constexpr DriftMark kByShift = {"misalignment", 0.95};
inline constexpr uint64_t kFewestShifted = 50;
inline constexpr double kShiftVariance = 0.01, kShiftLeaves = 0.25;

// Slopes of d (drift/temperature.h): both with entropies; the sign alone.
inline constexpr DriftMark kByBothSlopes = {"temperature", 0.95};
inline constexpr DriftMark kBySign = {"temperature", 0.9};
inline constexpr double kSignExplains = 0.6;  // R^2 on log mu, where the record holds

// Later turns that begin with other ids, and what follows them has most of d^2; far outliers, ten
// times as many on one side, over a bulk that agrees to a factor of 2.
inline constexpr DriftMark kByPrompts = {"retokenisation", 0.95};
inline constexpr DriftMark kByOutliers = {"retokenisation", 0.9};
inline constexpr uint64_t kFewestOutliers = 10, kOneSided = 10;

// -d - d^2/2 is above 0 by 5 errors and by 1e-3 nats, d has no outliers upward; or the record
// itself declares top-p or top-k beside a trainer over more.
inline constexpr DriftMark kByLostMass = {"truncation", 0.95};
inline constexpr DriftMark kByDeclaredSupport = {"truncation", 0.9};
inline constexpr double kLostMass = 1e-3, kRisesFar = 1e-3;

// Tokens below ln 1/2, and one above ln 2 for so many of them: the rollout covers fewer tokens.
// Where the record declares processed values fewer are enough.
inline constexpr DriftMark kByFewerTokens = {"truncation", 0.9};
inline constexpr uint64_t kFewestBelow = 100, kFewestBelowProcessed = 30, kBelowOfOne = 200;
inline constexpr uint64_t kFewestLittle = 100, kLittleOfOne = 20;  // by a factor of 1.1

// Both sides log one distribution and another was sampled: flatter is a temperature above 1;
// sharper is what the record declares of the two.
inline constexpr DriftMark kBySampledFlatter = {"temperature", 0.9};
inline constexpr DriftMark kByDeclaredHeat = {"temperature", 0.8};
inline constexpr DriftMark kByDeclaredCut = {"truncation", 0.8};

// d^2 grows with the cached tokens by 5 errors (3 where restarts undo its growth) and is less than
// half without them; or it grows and restarts undo it, and nothing says what was cached. The latter
// is also a tensor that updates skip, or scales that age: rarer, by nobody's count.
inline constexpr DriftMark kByCachedTokens = {"stale-cache", 0.95};
inline constexpr DriftMark kByRestarts = {"stale-cache", 0.6};
inline constexpr double kBesideGrowth = 3;

inline constexpr DriftMark kByJump = {"missed-sync", 0.9};

// All values of a side on a 16-bit grid, whose half units explain half of d^2; d on multiples of a
// power of 2.
inline constexpr DriftMark kByGrid = {"rounded-logits", 0.9};
inline constexpr DriftMark kByLattice = {"rounded-logits", 0.85};
inline constexpr double kGridExplains = 0.5;

// Half of k2 or more is a side's distance from itself.
inline constexpr DriftMark kByTrainerItself = {"batch-variance", 0.9};
inline constexpr DriftMark kByEngineItself = {"batch-variance", 0.8};

// A share beyond 64 medians of |d|, and joined routing that differs.
inline constexpr DriftMark kByFlips = {"router-flips", 0.8};
inline constexpr double kFlippedShare = 1e-3;

inline constexpr DriftMark kByThirdPass = {"staleness", 0.95};
inline constexpr DriftMark kByLag = {"staleness", 0.9};

// No mark and a true record: noise, or anything too small to leave its mark. Of the simulated mix,
// whose causes come in sizes down to nothing, two in five are noise alone.
inline constexpr DriftMark kByBothTests = {"noise", 0.4};
inline constexpr DriftMark kByRecordTest = {"noise", 0.4};
inline constexpr double kBeyondRounding = 0.02;  // k2: seven times an fp8 rollout's

}  // namespace plumbline::rules
