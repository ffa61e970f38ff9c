// All thresholds and confidences by which a cause of drift is named.
//
// A confidence is the share of simulated runs so named that have that cause, over a mix of causes
// at several sizes, rounded down (tests/rules/drift_calibration_test.cc checks each). It is at most
// 0.95, because reality has causes that no simulation has. The simulation does not produce the
// evidence of kByThirdPass, kByEngineItself, kByFlips, kByUnlabelledJump, kByUnits, kByWorker,
// kByFirstTokens and kByNeverArrived, so these are estimated only.
#pragma once

#include <cstdint>

namespace plumbline::analysis {

struct DriftMark {
  const char* cause;  // from the list in docs/rules/drift/logit-drift.md
  double confidence;
};

// log mu = 0 where the trainer gives less than a half. An honest top-p record holds zeros where one
// token was kept. Below one half, that needs a top-p below one half, or greedy sampling.
inline constexpr DriftMark kByZeros = {"zero-filled", 0.95};
inline constexpr uint64_t kFewestZeros = 3;
inline constexpr double kZeroShare = 1e-4;

// log pi against log mu of the previous or next token leaves a quarter of d's variance. Honest
// neighbours are unrelated, so the variance would rise.
inline constexpr DriftMark kByShift = {"misalignment", 0.95};
inline constexpr uint64_t kFewestShifted = 50;
inline constexpr double kShiftVariance = 0.01, kShiftLeaves = 0.25;

// Slopes of d (drift/temperature.h): both with entropies, or only the sign.
inline constexpr DriftMark kByBothSlopes = {"temperature", 0.95};
inline constexpr DriftMark kBySign = {"temperature", 0.9};
inline constexpr double kSignExplains = 0.6;  // R^2 on log mu, if the record holds
// If the slope explains less, the cause is unknown, and its words name a temperature. If d is above
// 0 in a quarter of the tokens that are off by a factor of 1.1, it is no truncation.
inline constexpr double kSignHints = 0.05, kSignExcludesCut = 0.2;
inline constexpr uint64_t kRisesOften = 4;

// Later turns begin with other ids, and the tokens after them have most of d^2. Or: far outliers,
// ten times as many on one side, over a bulk that agrees to a factor of 2.
inline constexpr DriftMark kByPrompts = {"retokenisation", 0.95};
inline constexpr DriftMark kByOutliers = {"retokenisation", 0.9};
inline constexpr uint64_t kFewestOutliers = 10, kOneSided = 10;

// -d - d^2/2 is above 0 by 5 errors and by 1e-3 nats, and d has no upward outliers. Or: the record
// itself declares top-p or top-k, and the trainer's probabilities are over more tokens.
inline constexpr DriftMark kByLostMass = {"truncation", 0.95};
inline constexpr DriftMark kByDeclaredSupport = {"truncation", 0.9};
inline constexpr double kLostMass = 1e-3, kRisesFar = 1e-3;

// Tokens below ln 1/2, and at most one above ln 2 per kBelowOfOne of them: the rollout covers fewer
// tokens. If the record declares processed values, fewer are enough.
inline constexpr DriftMark kByFewerTokens = {"truncation", 0.9};
inline constexpr uint64_t kFewestBelow = 100, kFewestBelowProcessed = 30, kBelowOfOne = 200;
// pi + mu <= 1 where pi < mu / 2: mu may be that of the likeliest token, not of the sampled one.
inline constexpr uint64_t kFewestLikeliest = 30, kOfLikeliest = 50, kLikeliestOf = 20;
inline constexpr uint64_t kFewestLittle = 100, kLittleOfOne = 20;  // by a factor of 1.1

// Both sides log one distribution and another was sampled. If it is flatter, it is a temperature
// above 1. If it is sharper, it is what the record declares of the two.
inline constexpr DriftMark kBySampledFlatter = {"temperature", 0.9};
inline constexpr DriftMark kByDeclaredHeat = {"temperature", 0.8};
inline constexpr DriftMark kByDeclaredCut = {"truncation", 0.8};

// d^2 grows with the cached tokens by 5 errors (3 if restarts undo its growth) and is less than
// half without them. Or: it grows, restarts undo it, and the cached tokens are not recorded. A
// tensor that updates skip, or scales that age, may cause the latter too; this is assumed to be
// rarer, without a count.
inline constexpr DriftMark kByCachedTokens = {"stale-cache", 0.95};
inline constexpr DriftMark kByRestarts = {"stale-cache", 0.6};
inline constexpr double kNextToGrowth = 3;
// The first tokens of responses differ ten times as much as later ones of equal probability.
inline constexpr DriftMark kByFirstTokens = {"stale-cache", 0.7};

inline constexpr DriftMark kByJump = {"missed-sync", 0.9};
// The same without recorded versions: the tokens after the jump may be honestly stale.
inline constexpr DriftMark kByUnlabelledJump = {"missed-sync", 0.6};

// One side is the other times ln 10, ln 2, or the sequence's length, to 1 % of d^2.
inline constexpr DriftMark kByUnits = {"units", 0.95};
inline constexpr double kUnitsNear = 0.005;

// d is 0 in all tokens of the first step, in no step after it, and d^2 grew fourfold since then.
inline constexpr DriftMark kByNeverArrived = {"missed-sync", 0.8};
inline constexpr uint64_t kFewestNeverArrived = 4, kTokensOfFirst = 64;
inline constexpr double kNeverArrivedGrows = 4;

// All values of a side lie on a 16-bit grid whose half units explain half of d^2 (a fifth, if d has
// one sign: values that are cut have errors up to a whole unit). Or: d lies on
// multiples of a power of 2.
inline constexpr DriftMark kByGrid = {"rounded-logits", 0.9};
inline constexpr DriftMark kByLattice = {"rounded-logits", 0.85};
inline constexpr double kGridExplains = 0.5, kGridExplainsCut = 0.2;

// At least half of k2 is a side's difference from itself.
inline constexpr DriftMark kByTrainerItself = {"batch-variance", 0.9};
inline constexpr DriftMark kByEngineItself = {"batch-variance", 0.8};

// A share of |d| exceeds 64 medians, and joined routing differs.
inline constexpr DriftMark kByFlips = {"router-flips", 0.8};
inline constexpr double kFlippedShare = 1e-3;

inline constexpr DriftMark kByThirdPass = {"staleness", 0.95};
inline constexpr DriftMark kByLag = {"staleness", 0.9};

// One worker of at least two has 90 % of d^2.
inline constexpr DriftMark kByWorker = {"one-worker", 0.8};

// No mark and a true record: noise, or a cause too small to leave its mark. In the simulated mix,
// whose causes have sizes down to zero, two in five are noise alone.
inline constexpr DriftMark kByBothTests = {"noise", 0.4};
inline constexpr DriftMark kByRecordTest = {"noise", 0.4};
// From the first quarter of the steps to the last; fewest steps of a quarter.
inline constexpr double kGrowsFromRounding = 10;
inline constexpr uint64_t kFewestGrowing = 3;
inline constexpr double kBeyondRounding = 0.02;  // k2: seven times that of an fp8 rollout

}  // namespace plumbline::analysis
