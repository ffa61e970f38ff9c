// All thresholds and confidences by which a cause of drift is named.
//
// A confidence is the share of simulated runs with this named cause that really have it, over a mix
// of causes at several sizes, rounded down (tests/rules/drift_calibration_test.cc checks each). It
// is at most 0.95, because reality has causes that no simulation has. The simulation does not
// produce the evidence of kByThirdPass, kByEngineItself, kByFlips, kByUnlabelledJump, kByUnits,
// kByWorker, kByFirstTokens, kByTemplate, kByPacking, kByStandingWeights, kByOtherModel and
// kByNeverArrived, so these are estimated only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::analysis {

struct DriftMark {
  const char* cause;  // id from the list in docs/rules/drift/logit-drift.md
  double confidence;
};

// log mu = 0, but the trainer gives less than a half. A correct top-p record has zeros if only one
// token was kept. If pi is below a half, this needs a top-p below a half, or greedy sampling.
inline constexpr DriftMark kByZeros = {"zero-filled", 0.95};
inline constexpr uint64_t kFewestZeros = 3;
inline constexpr double kZeroShare = 1e-4;

// The difference of log pi and log mu of the previous or next token has at most a quarter of d's
// variance. In a correct record neighbours are unrelated, so the variance would be larger.
inline constexpr DriftMark kByShift = {"misalignment", 0.95};
inline constexpr uint64_t kFewestShifted = 50;
inline constexpr double kShiftVariance = 0.01, kShiftLeaves = 0.25;

// Slopes of d (drift/temperature.h): both with entropies, or only the sign.
inline constexpr DriftMark kByBothSlopes = {"temperature", 0.95};
inline constexpr DriftMark kBySign = {"temperature", 0.9};
inline constexpr double kSignExplains = 0.6;  // R^2 on log mu that is required if the record holds
// If the slope explains less, the cause is unknown, and its words name a temperature. Among tokens
// that differ by a factor of 1.1, if those with d above 0 are a quarter of those below 0 or more,
// the cause is not a truncation.
inline constexpr double kSignHints = 0.05, kSignExcludesCut = 0.2;
inline constexpr uint64_t kRisesOften = 4;

// Later turns begin with other ids, and the tokens after them have most of d^2. Or: there are far
// outliers, ten times as many on one side as on the other, and the other tokens agree to a factor
// of 2.
inline constexpr DriftMark kByPrompts = {"retokenisation", 0.95};
inline constexpr DriftMark kByOutliers = {"retokenisation", 0.9};
inline constexpr uint64_t kFewestOutliers = 10, kOneSided = 10;

// -d - d^2/2 is above 0 by 5 errors and by 1e-3 nats, and d has no upward outliers. Or: the record
// itself declares top-p or top-k, and the trainer's probabilities are over more tokens.
inline constexpr DriftMark kByLostMass = {"truncation", 0.95};
inline constexpr DriftMark kByDeclaredSupport = {"truncation", 0.9};
inline constexpr double kLostMass = 1e-3, kRisesFar = 1e-3;

// There are tokens below ln 1/2, and at most one above ln 2 for kBelowOfOne of them, so the rollout
// covers fewer tokens. If the record declares processed values, fewer such tokens are enough.
inline constexpr DriftMark kByFewerTokens = {"truncation", 0.9};
inline constexpr uint64_t kFewestBelow = 100, kFewestBelowProcessed = 30, kBelowOfOne = 200;
// If pi + mu <= 1 in tokens with pi < mu / 2, mu may be that of the likeliest token, not of the
// sampled one.
inline constexpr uint64_t kFewestLikeliest = 30, kOfLikeliest = 50, kLikeliestOf = 20;
inline constexpr uint64_t kFewestLittle = 100, kLittleOfOne = 20;  // that differ by a factor of 1.1

// Both sides log the same distribution, but another one was sampled. If the sampled one is flatter,
// the cause is a temperature above 1. If it is sharper, the cause is a temperature or a truncation,
// whichever the record declares.
inline constexpr DriftMark kBySampledFlatter = {"temperature", 0.9};
inline constexpr DriftMark kByDeclaredHeat = {"temperature", 0.8};
inline constexpr DriftMark kByDeclaredCut = {"truncation", 0.8};

// d^2 grows with the cached tokens by 5 standard errors (3 if its growth ends at restarts), and is
// less than half without them. Or: d^2 grows, the growth ends at restarts, and the cached tokens
// are not recorded. A tensor that updates skip, or outdated scales, may also cause the latter. This
// is assumed to be rarer, but was not counted.
inline constexpr DriftMark kByCachedTokens = {"stale-cache", 0.95};
inline constexpr DriftMark kByRestarts = {"stale-cache", 0.6};
inline constexpr double kNextToGrowth = 3;
// The first tokens of responses differ ten times as much as later ones of equal probability, and
// not in the first step, or only in sequences with cached tokens.
inline constexpr DriftMark kByFirstTokens = {"stale-cache", 0.7};
// The same from the run's first step on, or without cached tokens: in all sequences, or in a part.
inline constexpr DriftMark kByTemplate = {"template", 0.7};
inline constexpr DriftMark kByPacking = {"packing", 0.7};
inline constexpr double kInAllSequences = 0.9, kInPartOfSequences = 0.8;

// Drift jumps and then grows: in 8 steps or more after the jump, the slope of ln d^2 is above 0 by
// 6 standard errors and adds up to a factor of 1.5. Or: it jumps and falls back.
inline constexpr double kOnsetErrors = 6, kOnsetGrows = 1.5;
inline constexpr size_t kFewestOnset = 8;
inline constexpr DriftMark kByJump = {"missed-sync", 0.9};
// The same without recorded versions. The tokens after the jump may then be stale by design.
inline constexpr DriftMark kByUnlabelledJump = {"missed-sync", 0.6};

// One side is the other, multiplied by ln 10, ln 2, or the sequence's length, up to 1 % of d^2.
inline constexpr DriftMark kByUnits = {"units", 0.95};
inline constexpr double kUnitsNear = 0.005;

// d is 0 in all tokens of the first step, in no step after it, and d^2 grew fourfold since then.
inline constexpr DriftMark kByNeverArrived = {"missed-sync", 0.8};
inline constexpr uint64_t kFewestNeverArrived = 4, kTokensOfFirst = 64;
inline constexpr double kNeverArrivedGrows = 4;

// Drift is as small as rounding in the first steps and grows fourfold with the versions, in nine of
// ten pairs of steps a quarter of the run apart. The engine scores recurring tokens with the same
// bits, and the trainer's values of them move by more than twice the first drift.
inline constexpr DriftMark kByStandingWeights = {"missed-sync", 0.85};
inline constexpr size_t kFewestSteady = 16;
inline constexpr double kSteadyGrows = 4, kSteadyRises = 0.9, kMovesFromNoise = 2;

// Beyond ten limits from the first step on, and the trainer gives the same values again. Or: log pi
// does not follow log mu: the slope of log pi on log mu is below kUnrelatedSlope.
inline constexpr DriftMark kByOtherModel = {"other-model", 0.8};
inline constexpr double kUnrelatedSlope = 0.2;
// Largest mean square of first tokens, relative to later ones, if prompts do not differ.
inline constexpr double kEvenPositions = 1.3;
// Squared difference of the trainer's values of one token in one context, as a share of d^2. It is
// 2 if noise of the trainer causes all of d.
inline constexpr double kRepeatsEqual = 0.1, kRepeatsApart = 0.5;
// Smallest d^2 of the recurring tokens, as a share of that of all tokens.
inline constexpr double kRepeatsDrift = 0.25;
inline constexpr double kByRepeatedContexts = 0.8;  // confidence of batch-variance by it

// All values of a side are on a 16-bit grid, and errors of half a unit explain half of d^2. If d
// has only one sign, a fifth is enough, because truncated values have errors up to a whole unit.
// Or: all d are multiples of a power of 2.
inline constexpr DriftMark kByGrid = {"rounded-logits", 0.9};
inline constexpr DriftMark kByLattice = {"rounded-logits", 0.85};
inline constexpr double kGridExplains = 0.5, kGridExplainsCut = 0.2;

// At least half of k2 is the difference of one side from itself.
inline constexpr DriftMark kByTrainerItself = {"batch-variance", 0.9};
inline constexpr DriftMark kByEngineItself = {"batch-variance", 0.8};

// A share of |d| exceeds 64 times the median, and joined routing differs.
inline constexpr DriftMark kByFlips = {"router-flips", 0.8};
inline constexpr double kFlippedShare = 1e-3;

inline constexpr DriftMark kByThirdPass = {"staleness", 0.95};
inline constexpr DriftMark kByLag = {"staleness", 0.9};

// One worker of at least two has 90 % of d^2.
inline constexpr DriftMark kByWorker = {"one-worker", 0.8};

// If the record is true and there is no mark, the cause is noise, or too small to leave its mark.
// In the simulated mix, whose causes have sizes down to zero, two in five such runs have only
// noise.
inline constexpr DriftMark kByBothTests = {"noise", 0.4};
inline constexpr DriftMark kByRecordTest = {"noise", 0.4};
// Required growth from the first quarter of the steps to the last quarter, and fewest steps of a
// quarter.
inline constexpr double kGrowsFromRounding = 10;
// Or a smaller growth, in eight of ten pairs of steps a quarter of the run apart.
inline constexpr double kRisesFromRounding = 2, kRisesInPairs = 0.8;
inline constexpr uint64_t kFewestGrowing = 3;
inline constexpr size_t kFewestOfEighth = 4;     // steps of an eighth that is judged alone
inline constexpr double kBeyondRounding = 0.02;  // limit of k2: seven times that of an fp8 rollout

}  // namespace plumbline::analysis
