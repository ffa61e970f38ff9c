// Finds the cause of one site's drift: one cause for every drift finding of a run, or "unknown".
//
// A wrong cause is worse than none, so a cause is named only by a mark that no other cause leaves.
// If two causes remain possible, the result is "unknown", and its text names both. Pure functions;
// thread-safe.
#pragma once

#include <string>

#include "analysis/drift/change.h"
#include "analysis/drift/episode.h"
#include "analysis/drift/statistics.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Result of drift/record-invalid's test: E[rho | prefix] <= 1 is violated from above or from below.
// kSupport: violated from below, and the sampler's support is smaller: the record declares top-p or
// top-k of the logged values, or it declares processed values and no token contradicts a smaller
// support, or d is nearly always at most 0 (LosesMass). The record is then true, and the trainer's
// probabilities are over more tokens.
enum class RecordOutcome { kUntested, kQuiet, kUp, kDown, kInconclusive, kSupport };
// Result of drift/sampler-mismatch's test: -log mu is below or above its entropy.
enum class SamplerOutcome { kUntested, kQuiet, kBelow, kAbove, kInconclusive };

// Results of the other rules on the same tokens.
struct DriftTests {
  RecordOutcome record = RecordOutcome::kUntested;
  SamplerOutcome sampler = SamplerOutcome::kUntested;
  bool router_flips = false;  // joined routing differs in the tokens' layers
  // Mean d^2/2 of the trainer against itself. NaN if it was not measured.
  double trainer_k2 = kNotRecorded;

  void Persist(Archive& a) { a(record, sampler, router_flips, trainer_k2); }
  // True if results that depend on the ratios' distribution are not valid.
  bool record_failed() const {
    return record == RecordOutcome::kUp || record == RecordOutcome::kDown ||
           record == RecordOutcome::kSupport;
  }
  bool sampler_failed() const {
    return sampler == SamplerOutcome::kBelow || sampler == SamplerOutcome::kAbove;
  }
};

struct DriftCause {
  std::string id;  // id from the list in docs/rules/drift/logit-drift.md
  double confidence = 0;
  std::string words;  // a sentence without its full stop: the mark that identifies the cause
  std::string fix;    // the recommended action
  // If the drift began in one step and its cause is unknown: the causes that remain.
  std::string remaining;

  void Fill(v1::Finding& finding) const;  // Sets the finding's cause, and its fix if it has none.
};

// Tests all tokens, and parts of them. Each test gets a share of the tail probability of 5
// deviations.
TemperatureMark FindTemperature(const DriftStatistics& statistics);

// A cause's mark must differ from zero by this number of standard errors.
inline constexpr double kDriftDeviations = 5;

// Slope of d on the advantage, in units of d per standard deviation of the advantage.
struct AdvantageBias {
  bool found = false;
  double per_deviation = 0;
};
AdvantageBias FindAdvantageBias(const DriftStatistics& statistics);

// Tests whether older weights cause most of the stale tokens' drift. Uses the best evidence
// available: the forward pass at the tokens' version. If there is none, uses the dependence on lag
// and, if versions change inside sequences, the fall at the change. Each of these two tests has
// half of the false-alarm probability.
struct StalenessMark {
  enum class By { kNothing, kSplit, kLag, kJumps };
  // The evidence that was used for `found`, or that is available; kNothing if there is none.
  By by = By::kNothing;
  bool found = false;
  SplitFit split;
  LagFit lag;
  JumpFit jumps;
  double median_lag = 0;
};
StalenessMark FindStaleness(const DriftStatistics& statistics);

// Patterns of a site's steps. Jump and episode: of the tokens with lag 0, or of all tokens if no
// lag is recorded. Sawtooth: of those with the most frequent lag.
struct StepPatterns {
  StepChange jump;
  DriftEpisode episode;
  Sawtooth sawtooth;
};

DriftCause NameDriftCause(const DriftStatistics& statistics, const StepPatterns& patterns,
                          const DriftTests& tests);

// Returns true if the rollout's probabilities are over fewer tokens than the trainer's: a grammar
// (structured decoding), top-p, top-k. The rollout's probability of an allowed token is its share
// among the allowed tokens. So d is ln of the trainer's mass on these, which is at most 0. Then
// some tokens are below ln 1/2 and nearly none above ln 2, while wrong ids or shifted values put
// some there. If log mu is exactly 0 and the trainer gives less than a half, the token was the only
// allowed one, or padding. Such values count if the record declares processed values.
bool CoversLess(const DriftStatistics& s);

// Returns true if log mu may be that of the likeliest token instead of the sampled one: in a
// twentieth of the tokens pi is less than mu / 2, in nearly none more than 2 mu, and if mu is at
// least a half, pi nearly never exceeds 1 - mu. A few allowed tokens of small mass have the same
// effect.
bool LogsLikeliest(const DriftStatistics& s);

// Returns true if d is nearly never above 0, and the sampled tokens lack some of the trainer's
// probability, by `deviations` standard errors. This is the effect of top-p or top-k that only the
// engine applies.
bool LosesMass(const DriftStatistics& s, double deviations);

}  // namespace plumbline::analysis
