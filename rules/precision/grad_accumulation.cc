#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/accumulation/accumulation.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "rules/bases/alpha_sites.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/grad-accumulation

A running sum of gradients is kept in too few bits, so that late micro-batches are lost.

**Why.** A sum does not change if the addend is below half of its last place: a sum of ones stops at 256 in bf16
and at 2,048 in fp16. Gradients of mean 1 and spread 0.5 in bf16: 256 micro-batches -0.1 %, 512 -1.4 %,
1,024 -45 %. Elements whose means differ lose 39 % at 1,024. The loss curve shows nothing: a gradient that is
45 % too small in every element acts as a learning rate that is too small; it is worse if the elements' errors differ.

**Bad.** `sums of 1,024 addends kept in bf16 are 45 % too small; 83 % of the additions changed nothing`.

**Good.** `sums of 1,024 addends: fp32, one after the other; 0.00 ulp`.

**How to fix it.**
- PyTorch: keep `.grad` in fp32 (fp32 parameters under `torch.autocast`), or add up in a fp32 buffer of your own
  and copy it into `.grad` once.
- Megatron-LM: `--accumulate-allreduce-grads-in-fp32` (`--main-grads-dtype fp32`).
- DeepSpeed: `"data_types": {"grad_accum_dtype": "fp32"}`.
- FSDP: parameters in fp32 with `MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)`.
- Or fewer, larger micro-batches.

**What it checks.** At sampled elements of a sum that one rank keeps over the micro-batches of a step, the
exact sum of the addends (a superaccumulator, no rounding) compared with the result. The error is counted
beyond the one rounding into the sum's dtype, which is unavoidable, in units of its last place (ulp), signed
so that plus is too large in magnitude; sums in fp32 are judged in ulp of bf16. Three answers are kept apart:
- *Which arithmetic*: the additions are replayed in bf16, fp16, fp32 and fp64, to nearest and toward zero. A
  replay that equals every sample bit for bit, and differs from those of other dtypes on enough of them, is
  `proved`.
- *Is there a bias*: a wealth process over all steps of the run, one per rank, alarms with a false-alarm
  probability that is this site's share of one in a million per run; a finding needs the interval of the
  unclipped mean (4.9 standard errors) to lie beyond 0.05 ulp on the alarm's side. Across tensors, e-BH at the
  end of the run. From 1 ulp on it is an error, below a warning.
- *What was lost*: the share of additions that left the sum as it was, and their share of the mass.

16-bit sums without a bias are a note where the same addends, drawn again into longer sums (twice as many, up to
2,048), pass the budget.

**The level** is that of the mean error, in ulp of the sum (figures: bf16, mean 1, spread 0.5):

| micro-batches | mean error | level | what it means for the run |
|---|---|---|---|
| up to 128 | below 0.05 ulp | pass, or a note | nothing: rounding is noise, below that of the batch |
| 256 | -0.1 % (-0.1 ulp) | warning | a learning rate 0.1 % smaller |
| 512 | -1.4 % (-2 ulp) | error | the last micro-batches count less than the first |
| 1,024 | -45 % | error | half of the data is read for nothing |

The mean error does not average out over steps: Adam's mean takes it in whole. What is lost first are the elements with a common
sign in all micro-batches, those that the run agrees on (Higham, 1993; Zamirai et al., "Revisiting BFloat16 Training", 2020).

**Strength.** `statistical` for the bias; the model in the details is `proved` by replay. The note is `heuristic`:
it assumes that longer sums have addends like these.

**Inconclusive when** no step came with values, micro-batches of a step are missing, something else wrote to the
sum between two of them, every sample holds a NaN or an infinity, or the samples are too few for any bias to
raise the alarm.

**Reasons.** `unexplained`: no candidate gives the sums, and the interval is too wide to exclude a bias;
`few-samples`: the sums are too few to show any bias; `no-sample`: no step contained values; `no-sum`: the
accumulation is neither a sum nor a mean; `malformed`: tensors do not fit each other or their bytes; `repeated-call`:
a micro-batch was recorded twice; `missing-calls`: a micro-batch has no values; `offsets-differ`: micro-batches have
different sampled elements; `dtypes-differ`: the dtype changed within a step; `changed-between`: something changed the
sum between two micro-batches; `too-large`: more values than the limit; `non-finite`: every sampled sum holds a NaN or
an infinity; `zero-sums`: every sampled sum is exactly zero.

**What it cannot see.** Rounding of the addends before they were recorded; sums within a kernel
(`precision/gemm-accumulator`); elements that were not drawn.

**Cost.** K additions in fixed point for each of up to 4,096 elements of a captured step, and a dozen replays.

**Sources.** Higham, "The accuracy of floating point summation", 1993; Waudby-Smith and Ramdas, "Estimating means
of bounded random variables by betting", 2023; Wang and Ramdas on e-BH, 2022.
)page";

constexpr RuleInfo kInfo = {"precision/grad-accumulation",
                            "micro-batch gradients are summed with a bias",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {},
                            /*alpha_weight=*/1.0 / 16};

constexpr char kFix[] =
    "Accumulate in fp32: Megatron-LM --accumulate-allreduce-grads-in-fp32; DeepSpeed data_types "
    "grad_accum_dtype fp32; PyTorch: fp32 .grad, or a fp32 buffer of your own.";

constexpr double kAccumulationHalfAlpha = HalfOfAlpha(kInfo.alpha_weight);

class GradAccumulation : public Rule {
 public:
  explicit GradAccumulation(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    uint64_t more = 0;
    const std::vector<Accumulation> all = DecodeAccumulations(step, &more);
    if (all.empty()) return;
    AccumulationStatistics& tally = sites_.Of(step);
    tally.Take(step, all, more);
    const AccumulationStatistics::Rank* worst = tally.Alarmed();
    if (worst == nullptr || worst->stream.level() <= tally.reported) return;
    tally.reported = worst->stream.level();
    out.Add(Biased(Sites::KeyOf(step), tally, *worst, false));
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    sites_.AtEnd([&](const Key& key, const AccumulationStatistics& tally, bool by_ebh) {
      if (tally.reported != v1::LEVEL_UNSPECIFIED) return;
      const AccumulationStatistics::Rank* worst = by_ebh ? tally.Outside() : nullptr;
      out.Add(worst != nullptr ? Biased(key, tally, *worst, true) : Rest(key, tally));
    });
  }

  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(sites_);
  }

 private:
  using Sites = AlphaSites<AccumulationStatistics>;
  using Key = Sites::Key;

  static v1::Verdict Biased(const Key& key, const AccumulationStatistics& tally,
                            const AccumulationStatistics::Rank& worst, bool by_ebh) {
    const BiasStream& stream = worst.stream;
    FindingBuilder found;
    FillBias(stream, found.finding(), tally.unit);
    const bool small = stream.interval_side() == BiasSide::kTooSmall;
    found.Title(absl::StrCat("micro-batch gradients are summed too ", small ? "small" : "large"));
    std::string lost;
    if (worst.lost.lost > 0) {
      lost = absl::StrFormat(
          " %.0f %% of the additions (%.0f %% of the sum of magnitudes) changed nothing.",
          100 * worst.lost.lost_share(), 100 * worst.lost.mass_share());
    }
    found
        .Explain(absl::StrFormat(
            "Sums of %d addends on rank %d are %.2g %% too %s: a bias of %+.3g %s beyond rounding "
            "(interval %.3g to %.3g).%s %s. In fp32 the bias of the same addends is %+.2g. %s.",
            tally.most_adds, worst.rank, 100 * std::fabs(worst.relative()),
            small ? "small" : "large", stream.mean(), tally.unit, stream.low(), stream.high(), lost,
            worst.ModelText(), worst.fp32_mean(),
            Capitalised(ForecastWords(Forecast(stream.mean(), stream.sd())))))
        .Cause(worst.CauseId(), worst.match.accepted ? 1 : 0.5);
    if (by_ebh) {
      found.finding().mutable_false_alarm()->set_value(kAccumulationHalfAlpha);
      found.Assume(
          "selected by e-BH over all tensors: the rate is the expected share of false findings "
          "among the selected ones");
    }
    tally.FillWitness(worst, *found.finding().mutable_witness());
    found.Fix(kFix);
    return Complete(key, tally, found.Take());
  }

  static v1::Verdict Predicted(const Key& key, const AccumulationStatistics& tally) {
    const LongerSum& last = tally.longer.tried.back();
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title("micro-batch gradients are summed in 16 bits")
        .Explain(absl::StrFormat("%s. Sums of %d addends show no bias. A sum of %d such addends "
                                 "would have a bias of %+.2g ulp (%+.2g %%).",
                                 tally.Shown()->ModelText(), tally.most_adds, last.adds, last.mean,
                                 100 * last.relative))
        .Cause("16-bit-accumulator", 1)
        .Measured("addends at which the bias exceeds its limit", static_cast<double>(last.adds),
                  "addends")
        .Threshold(kBiasBudgetUlp, "limit of the bias test, in ulp")
        .Samples(tally.Judged())
        .Assume("addends of longer sums are similar")
        .Fix(kFix);
    return Complete(key, tally, found.Take());
  }

  static v1::Verdict Rest(const Key& key, const AccumulationStatistics& tally) {
    if (tally.Judged() == 0) return Complete(key, tally, Inconclusive(tally.WhyNothing()));
    if (tally.longer.breaks) return Predicted(key, tally);
    const AccumulationStatistics::Rank& shown = *tally.Shown();
    const bool distinguished = shown.match.accepted || shown.match.indistinguishable;
    const bool half = shown.match.accepted && shown.match.model.half();
    if (!distinguished && !tally.WithinBudget()) {
      return Complete(key, tally,
                      Inconclusive("unexplained: no candidate gives these sums, and the interval "
                                   "is too wide to exclude a bias"));
    }
    if (!half && !tally.WithinBudget() && !tally.Enough()) {
      return Complete(key, tally,
                      Inconclusive(absl::StrFormat(
                          "few-samples: %d sums are too few to show any bias", tally.Judged())));
    }
    return Complete(key, tally,
                    Pass(absl::StrFormat("sums of %d addends show no bias; %s", tally.most_adds,
                                         shown.ModelText())));
  }

  static v1::Verdict Complete(const Key& key, const AccumulationStatistics& tally,
                              v1::Verdict verdict) {
    SetPlace(verdict, std::get<1>(key), std::get<2>(key), tally.step_first, tally.step_last,
             tally.SiteRanks(verdict.kind() == v1::Verdict::KIND_FINDING));
    tally.Describe(*verdict.mutable_details());
    for (const std::string& assumption : tally.Assumptions()) verdict.add_assumptions(assumption);
    if (verdict.has_finding()) {
      *verdict.mutable_finding()->mutable_details() = verdict.details();
      for (const std::string& assumption : tally.Assumptions())
        verdict.mutable_finding()->add_assumptions(assumption);
      verdict.mutable_assumptions()->CopyFrom(verdict.finding().assumptions());
    }
    return verdict;
  }

  Sites sites_{kAccumulationHalfAlpha};
};

}  // namespace

CatalogueEntry grad_accumulation() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GradAccumulation>(options);
          }};
}

}  // namespace plumbline::rules
