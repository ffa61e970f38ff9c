// What the drift rules print of a site, findings and passes alike, and the figures it is held
// beside. Pure, thread-safe.
#pragma once

#include <string>
#include <vector>

#include "analysis/drift/run.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {

// Above this k3 (or KL), without a baseline of the deployment's own, drift is a warning: healthy
// FP8 rollouts reach 3e-3.
inline constexpr double kDriftWarning = 5e-3;
inline constexpr double kDriftHealthy = 3e-3;

// The row of the context table that k3 falls in: what healthy configurations show.
std::string DriftContext(double k3);

// Keys: tokens, sequences, non_finite, k1, k2, k3, mean_abs, ess_share, chi_square, tail_1.1, ...,
// slope and R^2 of the fits, strata of the mean square, and what is declared.
void DescribeDrift(const DriftStatistics& statistics, google::protobuf::Struct& details);

// A statistical finding at `site`, from `step_first` on: what `found` says so far, with the cause
// and fix of `cause`.
struct DriftAlarm {
  const char* kind;  // "probability", "run-length", "measured"
  double value;
};
v1::Verdict DriftFinding(const DriftSite& site, int64_t step_first, const DriftCause& cause,
                         FindingBuilder found, const DriftAlarm& alarm, uint64_t sample_size);

// The witness that is drawn: d of single tokens over log pi + H_pi, or over log mu where entropies
// are not recorded, and the line of the temperature where one was found.
void DrawDrift(const DriftStatistics& statistics, v1::Finding& finding);

// What every drift verdict rests on; the second alone: of halves without a counterpart.
void AssumeDrift(const DriftSite& site, v1::Verdict& verdict);
void AssumeHalves(const DriftSite& site, v1::Verdict& verdict);

// Ends a verdict whose details are filled: adds what it rests on, and gives a finding both.
void RestOn(const std::vector<std::string>& assumptions, v1::Verdict& verdict);

}  // namespace plumbline::rules
