#include "analysis/drift/cause.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/drift/marks.h"
#include "analysis/drift/part_cause.h"
#include "analysis/drift/plain_cause.h"
#include "analysis/drift/weights_cause.h"

namespace plumbline::analysis {
namespace {

using Named = std::optional<DriftCause>;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

DriftCause Name(const DriftMark& mark, std::string words, std::string fix) {
  return {mark.cause, mark.confidence, std::move(words), std::move(fix)};
}

Named ZeroFilled(const DriftStatistics& s) {
  const DriftDeclared& declared = s.declared;
  if (declared.top_k == 1 || declared.temperature == 0 || declared.top_p < 0.5) return {};
  if (CoversLess(s)) return {};
  if (s.unlikely_zeros < kFewestZeros || !(Share(s.unlikely_zeros, s.judged) > kZeroShare))
    return {};
  return Name(kByZeros,
              absl::StrFormat("log mu is exactly 0 for %d tokens to which the trainer gives a "
                              "probability below one half",
                              s.unlikely_zeros),
              "Find where the rollout's log-probabilities are padded or set to 0 (truncated "
              "sequences, tool output, dropped responses), or where a grammar allows only one "
              "token. Mask those tokens, or log their values.");
}

constexpr char kKeepIds[] =
    "Keep token ids from sampling to training: text that is decoded and encoded again has "
    "different tokens. Check chat templates between turns, and tool calls that are parsed and "
    "printed.";

// Tests whether prompts of later turns have other ids than were logged, and the tokens after them
// have most of the drift.
Named OtherPrompt(const DriftStatistics& s) {
  constexpr double kFewest = 3;
  const auto broken = static_cast<double>(s.turns.retokenised);
  const double all = s.fresh.bounded_square() * static_cast<double>(s.fresh.count());
  if (broken < kFewest || 100 * broken < static_cast<double>(s.turns.compared)) return {};
  if (!(s.after_other_prompt > all / 2)) return {};
  return Name(
      kByPrompts,
      absl::StrFormat("%d of %d later turns begin with token ids that differ from those logged in "
                      "the turn before, and %.0f %% of d^2 follows them",
                      s.turns.retokenised, s.turns.compared, 100 * s.after_other_prompt / all),
      kKeepIds);
}

// Numbers of far outliers above and below. `found`: the outliers are on one side, and the other
// tokens agree.
struct FarOff {
  uint64_t above = 0, below = 0;
  bool found = false;
};

FarOff FarToOneSide(const DriftStatistics& s) {
  FarOff far{s.fresh.above()[3], s.fresh.below()[3]};
  const uint64_t more = std::max(far.above, far.below), less = std::min(far.above, far.below);
  const bool bulk_agrees = s.sizes.Quantile(0.5) < std::log(2.0) && s.far_outliers.OthersAgree();
  far.found =
      more >= kFewestOutliers && more >= kOneSided * less && bulk_agrees && s.zeros < more / 2;
  return far;
}

Named Retokenised(const DriftStatistics& s) {
  if (Named prompt = OtherPrompt(s)) return prompt;
  const FarOff far = FarToOneSide(s);
  if (!far.found) return {};
  if (CoversLess(s)) {
    if (s.declared.mode == v1::LOGPROB_MODE_PROCESSED) return {};
    return DriftCause{
        "unknown", 0,
        "token ids that differ from the sampled ones, or fewer allowed tokens than in the trainer "
        "(a grammar): both cause large differences on one side",
        "Log logprob_mode and the rollout's own token ids, which distinguish the two causes."};
  }
  return Name(kByOutliers,
              absl::StrFormat(
                  "%d tokens differ by a factor above 100 %s, %d the other way; the others agree",
                  std::max(far.above, far.below), far.above > far.below ? "upward" : "downward",
                  std::min(far.above, far.below)),
              kKeepIds);
}

Named Temperature(const DriftStatistics& s, const DriftTests& tests) {
  const TemperatureMark mark = FindTemperature(s);
  if (!mark.found()) return {};
  if (!mark.by_entropy && IsUnrelated(mark.fit)) return {};
  const char* fix =
      "Divide the trainer's logits by the sampler's temperature, and log the rollout's "
      "log-probabilities after temperature (processed), so that both describe the distribution "
      "that was sampled.";
  const std::string whose = mark.part.pool() ? "" : " (" + mark.part.Words() + ")";
  if (mark.by_entropy) {
    const double c = mark.fit.slope;
    std::string words = absl::StrFormat(
        "d follows log pi + H with slope %+.3g, R^2 %.2f%s: the trainer has temperature %.3g", c,
        mark.fit.r2, whose, 1 - c);
    if (!tests.record_failed() && c < 1)
      words += absl::StrFormat(", or the rollout has %.3g", 1 / (1 - c));
    return Name(kByBothSlopes, std::move(words), fix);
  }
  // Uses only the sign. If the record fails upward, or if it holds and the slope explains most of
  // d, only a temperature makes d depend on log mu.
  if (!(mark.fit.r2 >= kSignExplains) && tests.record != RecordOutcome::kUp) return {};
  return Name(kBySign,
              absl::StrFormat("d changes with log mu (slope %+.3g, R^2 %.2f)%s", mark.fit.slope,
                              mark.fit.r2, whose),
              fix);
}

constexpr char kMaskBoth[] =
    "Use the sampler's mask in the trainer (top-p, top-k, the tokens that a grammar allows), or "
    "sample from the full vocabulary during training.";

Named Truncated(const DriftStatistics& s, const DriftTests& tests) {
  if (tests.record == RecordOutcome::kUp) return {};
  if (LosesMass(s, kDriftDeviations)) {
    return Name(kByLostMass,
                absl::StrFormat("a share of %.3g of the trainer's probability is outside the "
                                "sampled set, and d is never far above 0",
                                1 - std::exp(-s.lost_mass.mean())),
                kMaskBoth);
  }
  if (CoversLess(s)) {
    return Name(
        kByFewerTokens,
        absl::StrFormat("%d tokens have less than half of the rollout's probability in the "
                        "trainer, and %d more than twice: the rollout's distribution has fewer "
                        "tokens (top-p, top-k, or those that structured decoding allows)",
                        s.fresh.below()[1], s.fresh.above()[1]),
        kMaskBoth);
  }
  if (tests.record != RecordOutcome::kSupport) return {};
  return Name(
      kByDeclaredSupport,
      "the record declares top-p or top-k, and the trainer's probabilities include more tokens",
      kMaskBoth);
}

// The cause if both sides log the same distribution, but another one was sampled.
Named NotSampled(const DriftStatistics& s, const DriftTests& tests) {
  if (!tests.sampler_failed() || tests.record_failed()) return {};
  const bool t = s.declared.states_temperature(), cut = s.declared.states_truncation();
  const char* fix =
      "Log the rollout's log-probabilities of the sampled distribution (processed), and apply the "
      "same temperature and mask in the trainer.";
  const bool above = tests.sampler == SamplerOutcome::kAbove;
  if (above || (t && !cut)) {
    return Name(above ? kBySampledFlatter : kByDeclaredHeat,
                absl::StrFormat("tokens are %s likely than in the logged distribution",
                                above ? "less" : "more"),
                fix);
  }
  if (cut && !t)
    return Name(kByDeclaredCut,
                "tokens are more likely than in the logged distribution, and the record declares "
                "top-p or top-k",
                fix);
  return DriftCause{"unknown", 0,
                    "tokens are more likely than in the logged distribution: a temperature below "
                    "1, or top-p; both have the same effect here",
                    fix};
}

constexpr char kEmptyCache[] =
    "Empty the engine's prefix cache with every weight update (vLLM: reset_prefix_cache; SGLang: "
    "flush_cache).";

// The mark has two parts: growth that ends at restarts, and dependence on the cache. If the first
// part is present, a weaker dependence is enough.
Named StaleCache(const DriftStatistics& s, const Sawtooth& sawtooth) {
  const SlopeFit fit = s.on_cached.Fit();
  // Cached tokens must contribute most of the mean.
  const double mean = s.fresh.bounded_square();
  const double enough = sawtooth.found ? kNextToGrowth : kDriftDeviations;
  if (!(fit.z() > enough) || !(fit.intercept < mean / 2)) return {};
  const char* growth = sawtooth.found ? ", and with every step until a restart" : "";
  return Name(kByCachedTokens,
              absl::StrFormat("d^2 grows with the tokens that the prefix cache served, from %.2g "
                              "without%s",
                              std::max(fit.intercept, 0.0), growth),
              kEmptyCache);
}

// A cache that outlives updates causes this growth. A tensor that every update skips, or outdated
// scales, may also cause it. If d does not depend on the cached tokens, the cause is one of the
// latter.
Named GrowsUntilRestart(const DriftStatistics& s, const Sawtooth& sawtooth) {
  if (!sawtooth.found) return {};
  const std::string words =
      absl::StrFormat("drift grows by %.0f %% per step and falls back %d times%s",
                      100 * std::expm1(sawtooth.slope / 2), sawtooth.restarts,
                      sawtooth.by_attempts ? ", at each restart" : ", as at restarts");
  if (s.on_cached.Fit().count > 0) {
    return DriftCause{
        "unknown", 0,
        words +
            "; it does not follow the cached tokens: an update skips a tensor, or scales are stale",
        "Compare checksums of the engine's weights and scales with the trainer's "
        "after an update."};
  }
  return Name(kByRestarts,
              words +
                  ": a prefix cache that is not cleared by updates, a tensor that updates skip, or "
                  "stale scales (cached_tokens would distinguish them)",
              kEmptyCache);
}

Named Stale(const DriftStatistics& s) {
  const StalenessMark mark = FindStaleness(s);
  if (!mark.found) return {};
  std::string words =
      absl::StrFormat("d^2 grows with the version lag, from %.2g at lag 0", 2 * mark.lag.at_zero);
  if (mark.by == StalenessMark::By::kSplit) {
    words = absl::StrFormat(
        "the trainer itself changed by d^2 of %.2g since the tokens were sampled; at that time it "
        "differed from the engine by %.2g",
        2 * mark.split.staleness, 2 * mark.split.numerics);
  } else if (mark.by == StalenessMark::By::kJumps) {
    words = absl::StrFormat("d^2 falls from %.2g to %.2g when new weights arrive inside a sequence",
                            2 * mark.jumps.before, 2 * mark.jumps.after);
  }
  return Name(mark.by == StalenessMark::By::kSplit ? kByThirdPass : kByLag, std::move(words),
              "Limit the lag, or weight by truncated importance ratios of the version that sampled "
              "the token.");
}

// Returns the largest k2 of the eighths of the steps.
double LargestOfEighths(const DriftStatistics& s) {
  const std::vector<DriftPoint> points = s.series.At(s.series.CommonLag());
  const size_t part = points.size() / 8;
  double largest = 0;
  for (size_t i = 0; part >= kFewestOfEighth && i + part <= points.size(); i += part) {
    double sum = 0;
    for (size_t k = i; k < i + part; ++k) sum += points[k].mean_square;
    largest = std::max(largest, sum / 2 / static_cast<double>(part));
  }
  return largest;
}

Named Numerics(const DriftStatistics& s, const DriftTests& tests) {
  const double k2 = s.fresh.k2();
  if (tests.trainer_k2 >= k2 / 2) {
    return Name(kByTrainerItself,
                absl::StrFormat("the trainer differs from itself by k2 = %.2g of %.2g",
                                tests.trainer_k2, k2),
                "Use batch-invariant kernels, or the same batch shape for both passes.");
  }
  if (s.rescore_k2.mean() >= k2 / 2) {
    return Name(kByEngineItself,
                absl::StrFormat("the engine differs from itself by k2 = %.2g of %.2g",
                                s.rescore_k2.mean(), k2),
                "Use batch-invariant kernels in the engine, or rescore with the batch shape of the "
                "sampling.");
  }
  if (tests.router_flips && s.sizes.RestShare() > kFlippedShare) {
    return Name(kByFlips,
                absl::StrFormat("a share of %.2g has very large d, and the joined routing differs",
                                s.sizes.RestShare()),
                "Use the router in fp32 on both sides, or replay inference's choices in training.");
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
  constexpr double kChance = 5.7e-7;  // two-sided tail of a normal distribution at 5 deviations
  return FindTemperature(s.slopes, static_cast<double>(s.fresh.count()), kChance);
}

AdvantageBias FindAdvantageBias(const DriftStatistics& s) {
  constexpr uint64_t kFewestSequences = 64;
  const SlopeFit fit = s.on_advantage.Fit();
  AdvantageBias bias;
  if (fit.sequences < kFewestSequences || std::isnan(fit.slope)) return bias;
  bias.per_deviation = fit.slope * std::sqrt(fit.variance_x);
  bias.found = std::fabs(fit.z()) > kDriftDeviations && std::fabs(bias.per_deviation) > 1e-3;
  return bias;
}

StalenessMark FindStaleness(const DriftStatistics& s) {
  // One-sided quantiles: 0.5 % for one test, 0.25 % for each of two tests.
  constexpr double kOne = 2.576, kEach = 2.807;
  StalenessMark mark;
  mark.median_lag = s.strata.MedianStaleLag();
  mark.split = s.split.Fit();
  mark.lag = s.by_lag.Fit(mark.median_lag);
  mark.jumps = s.jumps.Fit();
  const auto exceeds = [](double excess, double error, double deviations) {
    return excess > deviations * error;
  };
  if (mark.split.judged) {
    mark.by = StalenessMark::By::kSplit;
    mark.found = exceeds(mark.split.excess, mark.split.excess_error, kOne);
    return mark;
  }
  const bool by_lag = mark.lag.fitted && mark.lag.sequences >= kFewestClusters;
  const double deviations = by_lag && mark.jumps.judged ? kEach : kOne;
  if (by_lag) mark.by = StalenessMark::By::kLag;
  mark.found = by_lag && exceeds(mark.lag.excess, mark.lag.excess_error, deviations);
  if (mark.found || !mark.jumps.judged) return mark;
  mark.found = exceeds(mark.jumps.excess, mark.jumps.excess_error, deviations);
  if (mark.found || !by_lag) mark.by = StalenessMark::By::kJumps;
  return mark;
}

DriftCause NameDriftCause(const DriftStatistics& s, const StepPatterns& patterns,
                          const DriftTests& tests) {
  if (Named plain = PlainCause(s)) return *plain;
  if (Named zeros = ZeroFilled(s)) return *zeros;
  if (Named shifted = ShiftedCause(s)) return *shifted;
  if (Named temperature = Temperature(s, tests)) return *temperature;
  if (Named likeliest = LikeliestCause(s)) return *likeliest;
  if (Named outliers = Retokenised(s)) return *outliers;
  if (Named sliced = CutCause(s)) return *sliced;
  if (Named cut = Truncated(s, tests)) return *cut;
  if (Named other = NotSampled(s, tests)) return *other;
  if (tests.record_failed())
    return {"unknown", 0, "the record is wrong, and no cause is visible", ""};
  if (Named cache = StaleCache(s, patterns.sawtooth)) return *cache;
  if (Named first = FirstTokensCause(s)) return *first;
  if (Named onset = OnsetCause(s, patterns, tests)) return *onset;
  if (Named growth = GrowsUntilRestart(s, patterns.sawtooth)) return *growth;
  if (Named grows = GrowsWithVersions(s)) return *grows;
  if (Named rounded = RoundedCause(s)) return *rounded;
  if (Named numerics = Numerics(s, tests)) return *numerics;
  if (Named stale = Stale(s)) return *stale;
  if (Named worker = OneWorkerCause(s)) return *worker;
  if (Named other = SharperOrFlatter(s)) return *other;
  if (Named growth = GrowsFromRounding(s)) return *growth;
  if (FindAdvantageBias(s).found) {
    return {"unknown", 0,
            "d changes with the advantage: the trainer had already learnt from these tokens when "
            "it scored them, or different code scores rewarded tokens",
            "Score a batch before the first update on it, and use the same masks and templates on "
            "both sides."};
  }
  if (tests.record == RecordOutcome::kQuiet) {
    const bool both = tests.sampler == SamplerOutcome::kQuiet;
    if (s.fresh.k2() > kBeyondRounding || LargestOfEighths(s) > kBeyondRounding)
      return OtherWeights(s, tests);
    return Name(both ? kByBothTests : kByRecordTest,
                "the record is correct and no bias is visible: rounding, and different kernels",
                "Use the same arithmetic on both sides: fp32 log-softmax, the same attention and "
                "matmul kernels, and batch-invariant ones if bits must agree.");
  }
  return {"unknown", 0, "the record could not be tested, and no cause is visible", ""};
}

}  // namespace plumbline::analysis
