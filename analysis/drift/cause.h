// What one site's drift comes from: one cause for every drift finding of a run, or "unknown".
//
// Naming wrongly is worse than not naming. A cause is named only by a mark that the others do not
// leave; what is then still possible in two ways is "unknown", and the words say which two. Pure,
// thread-safe.
#pragma once

#include <string>

#include "analysis/drift/change.h"
#include "analysis/drift/statistics.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// drift/record-invalid's test: E[rho | prefix] <= 1 broken from above or from below.
// kSupport: from below, where the record itself declares top-p or top-k of what it logs, or that
// its values are processed and no token speaks against a smaller support: it is true then, and the
// trainer's probabilities are over more tokens.
enum class RecordOutcome { kUntested, kQuiet, kUp, kDown, kInconclusive, kSupport };
// drift/sampler-mismatch's: -log mu below or above its entropy.
enum class SamplerOutcome { kUntested, kQuiet, kBelow, kAbove, kInconclusive };

// What the other rules found out about the same tokens.
struct DriftTests {
  RecordOutcome record = RecordOutcome::kUntested;
  SamplerOutcome sampler = SamplerOutcome::kUntested;
  bool router_flips = false;  // joined routing differs on the tokens' layers
  // Mean d^2/2 of the trainer against itself; NaN: not measured.
  double trainer_k2 = kNotRecorded;

  void Persist(Archive& a) { a(record, sampler, router_flips, trainer_k2); }
  // What rests on the ratios' distribution cannot be told.
  bool record_failed() const {
    return record == RecordOutcome::kUp || record == RecordOutcome::kDown ||
           record == RecordOutcome::kSupport;
  }
  bool sampler_failed() const {
    return sampler == SamplerOutcome::kBelow || sampler == SamplerOutcome::kAbove;
  }
};

struct DriftCause {
  std::string id;  // of the list in docs/rules/drift/logit-drift.md
  double confidence = 0;
  std::string words;  // a sentence without its full stop: the mark it was named by
  std::string fix;    // what to do about it

  void Fill(v1::Finding& finding) const;  // cause, and fix where the finding has none
};

// Of all tokens and of parts of them, each with its share of the chance of 5 deviations.
TemperatureMark FindTemperature(const DriftStatistics& statistics);

// A cause's mark must be this many standard errors from nothing.
inline constexpr double kDriftDeviations = 5;

// d on the advantage, in units of d per standard deviation of the advantage.
struct AdvantageBias {
  bool found = false;
  double per_deviation = 0;
};
AdvantageBias FindAdvantageBias(const DriftStatistics& statistics);

// Do older weights make up most of the stale tokens' drift? By the best evidence there is: the
// forward at the tokens' version; else the dependence on lag and, where versions change inside
// sequences, the fall there, each at half the chance of a false alarm.
struct StalenessMark {
  enum class By { kNothing, kSplit, kLag, kJumps };
  By by = By::kNothing;  // what `found` rests on, or would; kNothing: it cannot be told
  bool found = false;
  SplitFit split;
  LagFit lag;
  JumpFit jumps;
  double median_lag = 0;
};
StalenessMark FindStaleness(const DriftStatistics& statistics);

DriftCause NameDriftCause(const DriftStatistics& statistics, const StepPatterns& patterns,
                          const DriftTests& tests);

// The rollout's probabilities are over fewer tokens than the trainer's: a grammar that allows some
// (structured decoding), top-p, top-k. A token that is allowed has its share of all that are, so
// that d = ln of the trainer's mass on them, at most 0: tokens lie below ln 1/2, and hardly any
// above ln 2, where other ids or a neighbour's values put some. Values of exactly 0 that the
// trainer gives less than a half are a single allowed token's, or padding: they count where the
// record declares processed values.
bool CoversLess(const DriftStatistics& s);

}  // namespace plumbline::rules
