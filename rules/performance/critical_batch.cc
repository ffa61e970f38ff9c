#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/critical-batch

The batch is so large that a larger one hardly speeds up the training, or has fewer sequences than the cluster has GPUs.

**Why.** At B = B_simple a step makes half of the progress that an infinite batch would make. At 8·B_simple it makes 89 % of it with eight
times the tokens: of 64 GPUs some 56 work only for the last 39 points. The opposite case: under FSDP a step of fewer sequences than GPUs
leaves GPUs without work.

**Bad.** `the batch of 4096 is 12 times the critical one, 341 (S = 0.0683, |G|² = 0.0002, 128 steps)`.

**Good.** `the batch of 512 is 1.5 times the critical one`.

**How to fix it.** Keep the batch and raise the learning rate with it as far as it is stable, or train on fewer GPUs
for longer; grow the batch over the run, since the
critical one grows as the loss falls. Fewer sequences than GPUs: shard over fewer of them, and use the rest for tensor or pipeline parallelism.

**What it checks.** Four series, recorded in steps of the trainer's choice: `gradient_noise.small_norm` and
`gradient_noise.big_norm`, the norms of the
gradient over a small and over a big batch of the same weights, and their sizes `gradient_noise.small_batch` and
`gradient_noise.big_batch` in one unit
(sequences, tokens). Under data parallelism the small one is a rank's own gradient before it is averaged, the big one the average. Of each step

    S    = (|g_s|² − |g_b|²) / (1/B_s − 1/B_b)
    |G|² = (B_b·|g_b|² − B_s·|g_s|²) / (B_b − B_s)

and, averaged over the steps before they are divided, B_simple = S / |G|². With D = B_b·|G|² − 4·S of each step a
finding where the mean of D is above 0 by
2.58 standard errors: the big batch is more than 4·B_simple. A run is judged whenever its steps have doubled, from 64 on, and at its end.

`sequences` (per step, all ranks), if it is recorded: a finding if it is smaller than the number of ranks.

**Strength.** `heuristic`: four times is customary; a `note`. Of 2,000 simulated runs of 128 steps whose batch
is exactly four times the critical one 21 were
accused, of those at twice none, of those at eight times all.

**Inconclusive when** fewer than 64 steps have all four, or the mean of S or |G|² is not above 0: single steps give
that in 4 of 10, and noise alone means nothing.

**What it cannot see.** Other advantages of a larger batch (a smaller share of communication); a critical size that
changes within the run; which part of the ranks is data
parallel, for `sequences`: all of them, it assumes.

**Cost.** Six sums.

**Sources.** McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "times",
     .type = OptionInfo::Type::kNumber,
     .unit = "critical batches",
     .default_value = "4",
     .reason = "customary: 80 % of the largest possible progress per sample",
     .low = 1,
     .high = 1e6},
};

constexpr RuleInfo kInfo = {"performance/critical-batch",
                            "the batch is larger than its critical size",
                            v1::LEVEL_NOTE,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kFewestNoiseSteps = 64;
constexpr double kNormalOf99 = 2.58;  // two-sided quantile

enum NoiseSeries : size_t { kSmallNorm, kBigNorm, kSmallBatch, kBigBatch, kNoiseSeries };
constexpr std::array<std::string_view, kNoiseSeries> kNoiseNames = {
    "gradient.noise.small.norm", "gradient.noise.big.norm", "gradient.noise.small.batch",
    "gradient.noise.big.batch"};

// Returns the index of a series among the four noise series. If it is none of them, returns
// kNoiseSeries.
size_t NoiseSeriesOf(const std::string& op) {
  const std::string name = absl::StrReplaceAll(op, {{"_", "."}, {"/", "."}, {"-", "."}});
  for (size_t i = 0; i < kNoiseSeries; ++i) {
    if (name == kNoiseNames[i]) return i;
  }
  return kNoiseSeries;
}

// The values of one rank in a step.
struct NoiseStep {
  std::array<double, kNoiseSeries> values{};
  uint32_t reported = 0;  // bit set of the recorded values
  void Persist(Archive& a) { a(values, reported); }
};

// Sums over steps. Every term is finite.
struct NoiseSums {
  uint64_t steps = 0, unusable = 0;
  int64_t first = 0, last = 0;
  double noise = 0, signal = 0, batch = 0;  // S, |G|^2, B_b
  double excess = 0, excess_squared = 0;    // sum of D and its squares, relative to `around`
  double around = 0;                        // the first D
  void Persist(Archive& a) {
    a(steps, unusable, first, last, noise, signal, batch, excess, excess_squared, around);
  }

  void Add(int64_t step, const NoiseStep& reported, double times) {
    const double small = reported.values[kSmallNorm] * reported.values[kSmallNorm];
    const double big = reported.values[kBigNorm] * reported.values[kBigNorm];
    const double b = reported.values[kSmallBatch], bb = reported.values[kBigBatch];
    const double s = (small - big) / (1 / b - 1 / bb);
    const double g = (bb * big - b * small) / (bb - b);
    const double d = bb * g - times * s;
    if (!(b > 0) || !(bb > b) || !std::isfinite(s) || !std::isfinite(g) || !std::isfinite(d) ||
        !(std::abs(d) < 1e150)) {
      ++unusable;
      return;
    }
    if (steps == 0) {
      first = step;
      around = d;
    }
    last = step;
    ++steps;
    noise += s;
    signal += g;
    batch += bb;
    excess += d - around;
    excess_squared += (d - around) * (d - around);
  }

  // Returns true if the mean of D is significantly above 0.
  bool Above() const {
    const auto n = static_cast<double>(steps);
    const double mean = excess / n;
    const double variance = std::max(0.0, (excess_squared - n * mean * mean) / (n - 1));
    return mean + around > kNormalOf99 * std::sqrt(variance / n);
  }
};

class CriticalBatch : public ScalarRule {
 public:
  explicit CriticalBatch(const Options& options) : times_(options.Number("times")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return NoiseSeriesOf(site.op()) < kNoiseSeries || site.op() == "sequences";
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (step.site.op() == "sequences") return JudgeSequences(step, out);
    const size_t which = NoiseSeriesOf(step.site.op());
    if (which == kNoiseSeries || step.items.empty()) return;
    // All ranks have the same norm over the big batch, so the first recorded value is used.
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar() || (now_.reported >> which & 1) != 0) continue;
      now_.values[which] = item.evidence->scalar().value();
      now_.reported |= 1u << which;
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (now_.reported == (1u << kNoiseSeries) - 1) {
      sums_.Add(step.step, now_, times_);
      const uint64_t steps = sums_.steps;
      if (!found_ && steps >= kFewestNoiseSteps && (steps & (steps - 1)) == 0) {
        v1::Verdict verdict = JudgeSums();
        found_ = verdict.kind() == v1::Verdict::KIND_FINDING;
        if (found_) out.Add(std::move(verdict));
      }
    }
    any_ |= now_.reported != 0;
    now_ = {};
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    if (any_ && !found_) out.Add(JudgeSums());
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(now_, sums_, found_, any_);
  }

 private:
  v1::Verdict JudgeSums() const {
    v1::Verdict verdict = JudgeNoise();
    SetPlace(verdict, "", "gradient_noise", sums_.first, sums_.last, std::vector<uint32_t>{});
    return verdict;
  }

  v1::Verdict JudgeNoise() const {
    if (sums_.steps < kFewestNoiseSteps) {
      return Inconclusive(absl::StrFormat(
          "few-steps: %d steps contain both norms and both batch sizes; the rule needs %d%s",
          sums_.steps, kFewestNoiseSteps,
          sums_.unusable > 0
              ? absl::StrFormat(
                    " (%d more have NaN values, or do not have a small and a large batch)",
                    sums_.unusable)
              : ""));
    }
    const auto n = static_cast<double>(sums_.steps);
    const double noise = sums_.noise / n, signal = sums_.signal / n, batch = sums_.batch / n;
    google::protobuf::Struct details;
    Put(details, "noise", noise);
    Put(details, "signal", signal);
    Put(details, "batch", batch);
    if (!(signal > 0) || !(noise > 0)) {
      return Inconclusive(absl::StrFormat("no-signal: the mean of %s over %d steps is not above 0",
                                          signal > 0 ? "the noise" : "|G|^2", sums_.steps),
                          std::move(details));
    }
    const double critical = noise / signal;
    Put(details, "critical_batch", critical);
    const std::string words = absl::StrFormat(
        "the batch of %.4g is %.3g times the critical one, %.3g (S = %.3g, |G|^2 = %.3g, %d "
        "steps)",
        batch, batch / critical, critical, noise, signal, sums_.steps);
    if (!sums_.Above()) return Pass(words, std::move(details));
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(kInfo.title)
        .Explain(Capitalised(words) + ".")
        .Cause("past-critical", 0.8)
        .Measured("batch / critical batch", batch / critical, "")
        .Threshold(times_, "customary")
        .Samples(sums_.steps)
        .Assume(
            "both norms belong to the same weights, and the small batch is a part of the large one")
        .Witness("noise", noise)
        .Witness("signal", signal)
        .Witness("critical_batch", critical)
        .Fix(
            "Raise the learning rate with the batch as far as training is stable, or use fewer "
            "GPUs for a longer time. Increase the batch during the run.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  static void JudgeSequences(const SiteStep& step, VerdictSink& out) {
    if (step.world_size < 2 || step.items.empty() || !step.items[0].evidence->has_scalar()) return;
    const double sequences = step.items[0].evidence->scalar().value();
    const std::string words = absl::StrFormat("a step of %.6g sequences is shared by %d ranks",
                                              sequences, step.world_size);
    if (!(sequences > 0) || !std::isfinite(sequences))
      return out.Add(Inconclusive("no-number: the number of sequences of the step is not above 0"));
    if (sequences >= step.world_size) return out.Add(Pass("at least one sequence per rank"));
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title("fewer sequences than GPUs")
        .Explain(Capitalised(words) + ": some GPUs have no sequence of their own.")
        .Cause("few-sequences", 0.8)
        .Measured("sequences of a step", sequences, "sequences")
        .Threshold(step.world_size, "one per rank")
        .Samples(1)
        .Assume("all ranks are data parallel")
        .Witness("sequences", sequences)
        .Witness("ranks", step.world_size)
        .Fix(
            "Shard over fewer GPUs and use the others for tensor or pipeline parallelism, or use a "
            "larger batch.");
    out.Add(found.Take());
  }

  double times_;
  NoiseStep now_;
  NoiseSums sums_;
  bool found_ = false, any_ = false;
};

}  // namespace

CatalogueEntry critical_batch() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CriticalBatch>(options);
          }};
}

}  // namespace plumbline::rules
