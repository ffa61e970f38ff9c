#include "rules/lib/drift_cause.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"

namespace plumbline::rules {
namespace {

using Named = std::optional<DriftCause>;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// An honest top-p record holds zeros where one token was kept; below one half that needs a top-p
// below one half, or greedy sampling.
Named ZeroFilled(const DriftStatistics& s) {
  const DriftDeclared& declared = s.declared;
  if (declared.top_k == 1 || declared.temperature == 0 || declared.top_p < 0.5) return {};
  if (s.unlikely_zeros < 3 || !(Share(s.unlikely_zeros, s.judged) > 1e-4)) return {};
  return DriftCause{
      "zero-filled", 1,
      absl::StrFormat("log mu is exactly 0 on %d tokens that the trainer gives less than a half",
                      s.unlikely_zeros),
      "Find where the rollout's log-probabilities are padded or defaulted to 0 (cut sequences, "
      "tool output, dropped responses), and mask those tokens or log their values."};
}

Named Misaligned(const DriftStatistics& s) {
  constexpr uint64_t kFewest = 50;
  const double here = s.unshifted.variance();
  if (s.unshifted.count < kFewest || !(here > 0.01)) return {};
  const double back = s.shifted_back.variance(), forward = s.shifted_forward.variance();
  if (!(std::min(back, forward) < here / 4)) return {};
  return DriftCause{
      "misalignment", 1,
      absl::StrFormat("log pi matches log mu of the token %s: that leaves %.2g of the variance",
                      back < forward ? "before" : "after", std::min(back, forward) / here),
      "Shift one side by one token: logits at position t speak of token t + 1. Check labels, "
      "prompt length and padding in the trainer's log-probability pass."};
}

// Far outliers that lie on one side, over a bulk that agrees.
Named Retokenised(const DriftStatistics& s) {
  const uint64_t above = s.fresh.above()[3], below = s.fresh.below()[3];
  const uint64_t more = std::max(above, below), less = std::min(above, below);
  const bool bulk_agrees = s.sizes.Quantile(0.5) < std::log(2.0);
  if (more < 10 || more < 10 * less || !bulk_agrees) return {};
  if (s.zeros >= more / 2) return {};
  return DriftCause{
      "retokenisation", 0.9,
      absl::StrFormat("%d tokens are off by a factor above 100 %s, %d the other way; the others "
                      "agree",
                      more, above > below ? "upward" : "downward", less),
      "Keep token ids from sampling to training: text that is decoded and encoded again has other "
      "tokens. Check chat templates between turns, and tool calls that are parsed and printed."};
}

Named Temperature(const DriftStatistics& s, const DriftTests& tests) {
  const TemperatureMark mark = FindTemperature(s);
  if (!mark.found()) return {};
  const char* fix =
      "Divide the trainer's logits by the sampler's temperature, and log the rollout's "
      "log-probabilities after temperature (processed), so that both speak of the distribution "
      "that was sampled.";
  if (mark.by_entropy) {
    const double c = mark.fit.slope;
    std::string words = absl::StrFormat(
        "d follows log pi + H with slope %+.3g, R^2 %.2f: the trainer is at temperature %.3g", c,
        mark.fit.r2, 1 - c);
    if (!tests.record_failed() && c < 1)
      words += absl::StrFormat(", or the rollout at %.3g", 1 / (1 - c));
    return DriftCause{"temperature", 1, words, fix};
  }
  // The sign alone: nothing else turns d with log mu while the record fails upward, or while it
  // holds and the slope explains most of d.
  const bool explains = mark.fit.r2 >= 0.6;
  if (!explains && tests.record != RecordOutcome::kUp) return {};
  return DriftCause{
      "temperature", 0.9,
      absl::StrFormat("d moves with log mu (slope %+.3g, R^2 %.2f)", mark.fit.slope, mark.fit.r2),
      fix};
}

Named Truncated(const DriftStatistics& s, const DriftTests& tests) {
  if (tests.record == RecordOutcome::kUp) return {};
  const ClusteredMean& lost = s.lost_mass;
  const bool significant = lost.z() > kDriftDeviations && lost.mean() > 1e-3;
  const bool one_sided = Share(s.fresh.above_fourth(), s.fresh.count()) <= 1e-3;
  if (!significant || !one_sided || s.fresh.above()[3] + s.fresh.below()[3] > 0) return {};
  return DriftCause{
      "truncation", 0.95,
      absl::StrFormat("%.3g of the trainer's probability lies outside what was sampled from, and "
                      "d never rises far above 0",
                      1 - std::exp(-lost.mean())),
      "Give the trainer the sampler's top-p and top-k mask, or sample from the full vocabulary "
      "(top_p = 1, no top_k) while training."};
}

// Both sides log the same distribution; it is not the one that was sampled.
Named NotSampled(const DriftStatistics& s, const DriftTests& tests) {
  if (!tests.sampler_failed() || tests.record_failed()) return {};
  const bool t = s.declared.says_temperature(), cut = s.declared.says_truncation();
  const char* fix =
      "Log the rollout's log-probabilities of the distribution that is sampled (processed), and "
      "apply the same temperature and mask in the trainer.";
  const bool above = tests.sampler == SamplerOutcome::kAbove;
  if (above || (t && !cut)) {
    return DriftCause{"temperature", above ? 0.9 : 0.8,
                      absl::StrFormat("tokens are %s likely than the logged distribution says",
                                      above ? "less" : "more"),
                      fix};
  }
  if (cut && !t)
    return DriftCause{"truncation", 0.8,
                      "tokens are likelier than the logged distribution says, and the record "
                      "declares top-p or top-k",
                      fix};
  return DriftCause{"unknown", 0,
                    "tokens are likelier than the logged distribution says: a temperature below 1 "
                    "or top-p, which leave the same marks here",
                    fix};
}

Named StaleCache(const DriftStatistics& s) {
  const SlopeFit fit = s.on_cached.Fit();
  // What cached tokens bring must be most of the mean.
  const double mean = s.fresh.bounded_square();
  if (!(fit.z() > kDriftDeviations) || !(fit.intercept < mean / 2)) return {};
  return DriftCause{
      "stale-cache", 0.95,
      absl::StrFormat("d^2 grows with the tokens that the prefix cache served, from %.2g without",
                      std::max(fit.intercept, 0.0)),
      "Empty the engine's prefix cache with every weight update (vLLM: reset_prefix_cache; SGLang: "
      "flush_cache)."};
}

Named MissedSync(const StepChange& jump) {
  if (!jump.found) return {};
  return DriftCause{
      "missed-sync", 0.9,
      absl::StrFormat("drift of tokens labelled lag 0 rose %.1f-fold at step %d and stayed",
                      std::exp(jump.jump), jump.step),
      "Check that the weight update of that step reached every worker and every tensor: compare "
      "checksums of the engine's weights with the trainer's after each update."};
}

Named Stale(const DriftStatistics& s) {
  const LagFit fit = s.by_lag.Fit(s.strata.MedianStaleLag());
  if (!fit.fitted || !(fit.excess > 2.576 * fit.excess_error)) return {};
  return DriftCause{
      "staleness", 0.9,
      absl::StrFormat("d^2 grows with the version lag, from %.2g at lag 0", 2 * fit.at_zero),
      "Bound the lag, or weigh by truncated importance ratios of the version that "
      "drew the token."};
}

Named Rounded(const DriftStatistics& s) {
  if (!(s.rounding_share() >= 0.5)) return {};
  const bool both = s.gridded_train > 0 && s.gridded_rollout > 0;
  return DriftCause{
      "rounded-logits", 0.9,
      absl::StrFormat(
          "%s values lie on a 16-bit grid, and that rounding explains the drift",
          both ? "both sides'" : (s.gridded_train > 0 ? "the trainer's" : "the rollout's")),
      "Compute log-softmax and keep log-probabilities in fp32 (cast the logits up first)."};
}

Named Numerics(const DriftStatistics& s, const DriftTests& tests) {
  const double k2 = s.fresh.k2();
  if (tests.trainer_k2 >= k2 / 2) {
    return DriftCause{"batch-variance", 0.9,
                      absl::StrFormat("the trainer differs from itself by k2 = %.2g of %.2g",
                                      tests.trainer_k2, k2),
                      "Use batch-invariant kernels, or the same batch shape for both passes."};
  }
  if (tests.router_flips && s.sizes.RestShare() > 1e-3) {
    return DriftCause{"router-flips", 0.8,
                      absl::StrFormat("a share of %.2g lies far outside the bulk, and the joined "
                                      "routing differs",
                                      s.sizes.RestShare()),
                      "Router in fp32 on both sides, or replay inference's choices in training."};
  }
  return {};
}

}  // namespace

void DriftCause::Fill(v1::Finding& finding) const {
  finding.mutable_cause()->set_id(id);
  finding.mutable_cause()->set_confidence(confidence);
  if (finding.fix().empty()) finding.set_fix(fix);
}

TemperatureMark FindTemperature(const DriftStatistics& s) {
  TemperatureMark mark;
  mark.fit = s.on_entropy.Fit();
  if (mark.fit.count > 0) {
    mark.by_entropy = std::fabs(mark.fit.z()) > kDriftDeviations && mark.fit.r2 >= 0.6;
    if (mark.by_entropy || 2 * mark.fit.count > static_cast<double>(s.fresh.count())) return mark;
  }
  mark.fit = s.on_rollout.Fit();
  // Noise of log mu itself turns d against it by var(d) / var(log mu) at most.
  const double noise = mark.fit.variance_y / mark.fit.variance_x;
  mark.by_rollout = std::fabs(mark.fit.slope) >
                    std::max(noise, 0.01) + kDriftDeviations * mark.fit.standard_error;
  return mark;
}

DriftCause NameDriftCause(const DriftStatistics& s, const StepChange& jump,
                          const DriftTests& tests) {
  if (Named zeros = ZeroFilled(s)) return *zeros;
  if (Named shifted = Misaligned(s)) return *shifted;
  if (Named temperature = Temperature(s, tests)) return *temperature;
  if (Named outliers = Retokenised(s)) return *outliers;
  if (Named cut = Truncated(s, tests)) return *cut;
  if (Named other = NotSampled(s, tests)) return *other;
  if (tests.record_failed())
    return {"unknown", 0, "the record is not true, and no cause left its mark", ""};
  if (Named cache = StaleCache(s)) return *cache;
  if (Named sync = MissedSync(jump)) return *sync;
  if (Named rounded = Rounded(s)) return *rounded;
  if (Named numerics = Numerics(s, tests)) return *numerics;
  if (Named stale = Stale(s)) return *stale;
  if (tests.record == RecordOutcome::kQuiet) {
    const bool both = tests.sampler == SamplerOutcome::kQuiet;
    return {"noise", both ? 0.6 : 0.5,
            "the record is true and no bias shows: rounding and kernels that differ",
            "Give both sides one arithmetic: fp32 log-softmax, the same attention and matmul "
            "kernels, batch-invariant ones where bits must agree."};
  }
  return {"unknown", 0, "the record could not be tested, and no cause left its mark", ""};
}

}  // namespace plumbline::rules
