// Writes the details of a site that drift rules print in findings and passes, and has the reference
// values. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "analysis/drift/run.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// If k3 (or KL) exceeds this value and the deployment has no baseline of its own, drift is a
// warning. Healthy FP8 rollouts reach 3e-3.
inline constexpr double kDriftWarning = 5e-3;
inline constexpr double kDriftHealthy = 3e-3;

// Returns the row of the context table for k3, which has values of healthy configurations.
std::string DriftContext(double k3);

// Fills the details. Keys: tokens, sequences, non_finite, k1, k2, k3, mean_abs, ess_share,
// chi_square, tail_1.1, ..., slope and R^2 of the fits, strata of the mean square, and the
// declarations.
void DescribeDrift(const DriftStatistics& statistics, google::protobuf::Struct& details);

// Builds a statistical finding at `site`, from `step_first` on. `found` has the facts; `cause` adds
// the cause and the fix.
struct DriftAlarm {
  const char* kind;  // "probability", "run-length", "measured"
  double value;
};
v1::Verdict DriftFinding(const DriftSite& site, int64_t step_first, const DriftCause& cause,
                         FindingBuilder found, const DriftAlarm& alarm, uint64_t sample_size);

// Returns " Cause: ...", which names the causes that remain, for a finding on a drift that began in
// one step. Returns "" if an update that did not arrive is the cause.
std::string PossibleCauses(const DriftCause& cause);

// Draws the witness: d of single tokens over log pi + H_pi, or over log mu if entropies are not
// recorded. If a temperature was found, adds its line.
void DrawDrift(const DriftStatistics& statistics, v1::Finding& finding);

// Returns the assumption on copies of sequences; "" if there are none.
std::string CopiesAssumed(const DriftStatistics& statistics);

// Add the assumptions of a drift verdict. AssumeHalves adds only those on halves without a
// counterpart.
void AssumeDrift(const DriftSite& site, v1::Verdict& verdict);
void AssumeHalves(const DriftSite& site, v1::Verdict& verdict);

// Completes a verdict whose details are filled: adds its assumptions. If it is a finding, copies
// details and assumptions to it.
void RestOn(const std::vector<std::string>& assumptions, v1::Verdict& verdict);

}  // namespace plumbline::analysis
